package arch

// The names that the field has better words for, and those words.

// deniedWords are denied as a part of any declared name: "trip" denies trip, trips, compactTrip and
// newCompactTrip. Their plurals are denied too.
var deniedWords = map[string]string{
	"carve":     "commandBuilder",
	"crowd":     "inflightLimiter",
	"desk":      "dispatcher",
	"elsewhere": "remoteOwner",
	"ending":    "completion",
	"era":       "epoch",
	"flights":   "singleflight",
	"heard":     "serverState",
	"lane":      "keyQueue",
	"letter":    "deadletter",
	"orphan":    "pendingReleases",
	"shelf":     "generationTable",
	"sieve":     "closedBucketFilter",
	"sieved":    "closedBucketFilter",
	"sought":    "lookup",
	"tell":      "notify",
	"teller":    "notifier, or InvalidationSource",
	"trip":      "exchange, batch, or rttEstimator",
	"turn":      "batchWrite, publishBatch, order, or generationSlot",
	"valve":     "backpressure",
	"verdict":   "decision, commitStatus, callResult, or publishResult",
}

// allowedPhrases are words of the field that have a denied word in them.
var allowedPhrases = []string{"round trip", "dead letter"}

// deniedLocals are the denied words that are denied as local variables and parameters of shipped
// code as well.
var deniedLocals = map[string]bool{
	"crowd": true, "desk": true, "ending": true, "lane": true, "orphan": true, "orphans": true,
	"shelf": true, "sieve": true, "teller": true, "trip": true, "valve": true, "verdict": true,
}

// deniedNames are denied as the whole name of a type, a function, or a variable or constant of a
// package. As a method, a field or a local variable they may be right: Stats.Sent, r.found.
var deniedNames = map[string]string{
	"asked":   "lookup",
	"code":    "a type of package preflight",
	"company": "drainGroup",
	"finding": "Diagnostic",
	"found":   "claimResult, or what was found",
	"inhand":  "assigned",
	"kept":    "the noun that it describes",
	"letgo":   "release",
	"met":     "claimResult",
	"sent":    "the noun that it describes",
	"told":    "renewal",
}

// deniedTypes are denied as the whole name of a type, and with "new" before it as that of a
// function. As verbs, and as names of variables, they may be right: place(order), share := n / 2.
var deniedTypes = map[string]string{
	"course":  "attemptLoop",
	"doubt":   "UncertainRecord",
	"draft":   "commandBuilder",
	"far":     "the noun that it describes",
	"front":   "filterStage",
	"gate":    "backpressure",
	"guard":   "amnesiaGuard, or what it guards",
	"life":    "drainGroup",
	"lines":   "commandBuilder",
	"moment":  "instant",
	"near":    "inlineSender",
	"place":   "claimPath, position, or slot",
	"rooms":   "semaphore",
	"share":   "claimPath",
	"spot":    "slot",
	"stage":   "rotationStep",
	"suspect": "poisonCandidate",
	"tail":    "canaryCheck",
	"way":     "claimPath",
}

// deniedExports are denied as names that a package exports, exactly as they are written.
var deniedExports = map[string]string{
	"Acknowledge": "ClearAmnesia",
	"Boot":        "Init",
	"Danger":      "PointOfNoReturn, or MarkIrreversible",
	"Deletes":     "DeleteExpired",
	"FirstOnly":   "OnlyNew",
	"Landed":      "EffectApplied",
	"Marks":       "Ledger",
	"Mixed":       "the layouts Full and Compact",
	"Most":        "DefaultPolicy",
	"NotBegun":    "NotStarted",
	"Rich":        "the layouts Full and Compact",
	"RunAndFlag":  "AllowAndFlag",
	"Second":      "SecondaryStore",
	"SeenOnly":    "the layouts Full and Compact",
	"Swept":       "Expired",
	"Unused":      "NotAttempted",
	"Usual":       "DefaultClass, or DefaultPolicy",
}

// deniedPackages are denied as names of packages.
var deniedPackages = map[string]string{
	"alone":    "batchsplit",
	"detached": "ctxdetach",
	"flow":     "pipeline",
	"front":    "filterbench",
	"leftout":  "skipreport",
	"letter":   "deadletter",
	"member":   "groupmember",
	"relays":   "outboxbench",
	"sealed":   "encrypted",
	"setting":  "kafkaconfig",
}

// allowedNames are denied names that are used in the field's own sense.
var allowedNames = map[string]string{
	"bench/internal/chart: Lines":       "a line chart has lines",
	"cmd/internal/serve: gate":          "it asks for a password",
	"cmd/internal/serve: newGate":       "as gate",
	"examples/saga: BookTrip":           "a journey",
	"examples/saga: Trip":               "a journey",
	"examples/saga: trip":               "as Trip",
	"kafkaadapter/kafkafranz: NewShare": "as Share",
	"kafkaadapter/kafkafranz: Share":    "Kafka's share groups",
	"dedup/preflight: Finding":          "linters and scanners report findings",
}
