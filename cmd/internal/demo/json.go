package demo

// Result is what --json writes about one composition.
type Result struct {
	Composition string `json:"composition"`
	Kept        bool   `json:"kept"` // also true for the usual pattern, which promises nothing
	Delivered   int    `json:"delivered"`
	Unique      int    `json:"unique_ids"`
	Effects     int    `json:"effects"`
	Duplicates  int    `json:"duplicates_skipped"`
	Killed      int    `json:"workers_killed"`
	Rebalances  int    `json:"rebalances"`
	// Lost and Doubled are ids. Unexplained is how many extra effects the kills do not explain.
	Lost        []string `json:"lost"`
	Doubled     []string `json:"doubled"`
	Unexplained int      `json:"unexplained"`
	Strange     []string `json:"not_produced"`
	Seconds     float64  `json:"seconds"`
}

func results(columns []column) []Result {
	all := make([]Result, 0, len(columns))
	for _, c := range columns {
		r := Result{
			Composition: titles[c.composition], Kept: c.kept(), Delivered: c.delivered,
			Unique: c.unique, Effects: c.effects, Duplicates: c.duplicates(),
			Killed: len(c.crashes), Rebalances: c.rebalances(), Unexplained: c.unexplained(),
			Lost: []string{}, Doubled: []string{}, Strange: append([]string{}, c.strange...),
			Seconds: c.took.Seconds(),
		}
		for _, l := range c.lost {
			r.Lost = append(r.Lost, l.id)
		}
		for _, d := range c.doubled {
			r.Doubled = append(r.Doubled, d.id)
		}
		all = append(all, r)
	}
	return all
}
