// Package console shows operators what Dedupers do and what their store keeps, in pages that a
// program serves in addition to its own. They show the rates and causes of duplicates over the last
// hour, their ages against the window, the keys in flight, the uncertain ones, and any key that is
// searched for.
//
//	c, err := console.New(console.Options{Store: store, Window: window})
//	if err != nil {
//		return err
//	}
//	cfg.Observer, err = c.Observer("payments", window) // of the Deduper
//	...
//	mux.Handle("/console/", guard(http.StripPrefix("/console", c)))
//
// # Access
//
// The console does not authenticate anybody: mount it behind what protects the rest of your
// operators' pages. It changes nothing unless Options.AllowChanges is set. Then uncertain keys can
// be resolved, one at a time or all that match a filter, and keys forgotten, each after a question.
// The POST must come from a page of the console itself, with a token bound to the browser's
// session. Options.Authorize decides who may make a change, and every change is logged.
//
// # Content
//
// Stores keep a digest of a key, its ID, and lists show that. A key is shown only to the person who
// has just typed it in. The console shows the length of a result, unless Options.ShowResult makes a
// text of it. Labels, which are kept in clear by a Deduper with Labels, are shown. Owner tokens are
// not.
//
// # Cost
//
// [Console.Observer] adds some atomic additions to each claim, and about 30 KiB of memory for each
// name, of which there are at most 33. A page asks the store a bounded number of questions within
// Options.Timeout. The pages need no script, no file besides the program and no other server.
//
// All methods are safe for concurrent use.
package console
