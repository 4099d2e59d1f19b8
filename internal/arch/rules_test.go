package arch

// module is the path of the root module; the table's names are relative to it.
const module = "github.com/onceward/onceward"

// Foreign modules that the table names.
const (
	goRedis   = "github.com/redis/go-redis/v9"
	testify   = "github.com/stretchr/testify"
	sarama    = "github.com/IBM/sarama"
	miniredis = "github.com/alicebob/miniredis/v2"
	franzGo   = "github.com/twmb/franz-go"
	kafkaGo   = "github.com/segmentio/kafka-go"
	confluent = "github.com/confluentinc/confluent-kafka-go/v2"
	pgx       = "github.com/jackc/pgx/v5"
	bits      = "github.com/bits-and-blooms/bloom/v3"
	grpcGo    = "google.golang.org/grpc"
	protobuf  = "google.golang.org/protobuf"
	genproto  = "google.golang.org/genproto/googleapis/rpc"
	watermill = "github.com/ThreeDotsLabs/watermill"
	mcpSDK    = "github.com/modelcontextprotocol/go-sdk"
	schemaGo  = "github.com/google/jsonschema-go"
	natsGo    = "github.com/nats-io/nats.go"
	amqp      = "github.com/rabbitmq/amqp091-go"
	natsSrv   = "github.com/nats-io/nats-server/v2"
	awsGo     = "github.com/aws/aws-sdk-go-v2"
	pubsub    = "cloud.google.com/go/pubsub/v2"
	googleAPI = "google.golang.org/api"

	// Of OpenTelemetry, whose packages share one prefix, code has the API alone: which exporter,
	// and which SDK, is the program's choice.
	otel       = "go.opentelemetry.io/otel"
	otelAPI    = "go.opentelemetry.io/otel/attribute"
	otelMetric = "go.opentelemetry.io/otel/metric"
	otelTrace  = "go.opentelemetry.io/otel/trace"
	otelCodes  = "go.opentelemetry.io/otel/codes"
	otelCarry  = "go.opentelemetry.io/otel/propagation"
	prometheus = "github.com/prometheus"
	yaml       = "go.yaml.in/yaml/v3"
)

// role says who may link a package.
type role int

const (
	shipped  role = iota // users link it: no testing, no driver, every exported name documented
	testOnly             // imported by tests, ours or a user's; it may import testing
	tool                 // run, never imported
)

// rule says what one package may import besides the standard library: packages of ours by their
// path below the module, others by their module. A package always may import itself in its tests.
type rule struct {
	role    role
	imports []string // in code
	tests   []string // in tests only, in addition
}

// table is the architecture: a star whose arrows all end at dedup, and leaves under internal.
// A package need not exist yet; one that exists must be here.
var table = map[string]rule{
	"dedup": {
		imports: []string{"dedup/driver", "dedup/internal/coalesce", "dedup/internal/ctxend",
			"dedup/internal/drain", "dedup/internal/idtable", "dedup/internal/keytext",
			"dedup/internal/lazyctx",
			"dedup/internal/pause", "dedup/internal/singleflight", "dedup/internal/slab",
			"dedup/internal/stepcode",
			"dedup/internal/waiting"},
		tests: []string{"dedup/deduptest", "dedup/layered"},
	},
	"dedup/driver": {imports: []string{"dedup/internal/keytext", "dedup/internal/stepcode"}},
	"dedup/internal/coalesce": {imports: []string{"dedup/internal/ctxend",
		"dedup/internal/drain", "dedup/internal/lazyctx", "dedup/internal/slab"}},
	"dedup/internal/ctxend":       {},
	"dedup/internal/drain":        {},
	"dedup/internal/idtable":      {},
	"dedup/internal/keytext":      {},
	"dedup/internal/lazyctx":      {},
	"dedup/internal/pause":        {},
	"dedup/internal/singleflight": {},
	"dedup/internal/slab":         {},
	"dedup/internal/stepcode":     {},
	"dedup/internal/waiting":      {imports: []string{"dedup/internal/pause"}},
	"dedup/layered": {imports: []string{"dedup", "dedup/driver"},
		tests: []string{"bloom", "dedup/deduptest"}},
	"dedup/resolver": {imports: []string{"dedup", "dedup/driver", "internal/backoff"}},
	"dedup/deduptest": {
		role:    testOnly,
		imports: []string{"dedup", "dedup/driver"},
	},
	"redisadapter": {
		imports: []string{"dedup", "dedup/driver", "dedup/preflight", "internal/advice",
			"internal/backoff", "internal/redisscript",
			"redisadapter/internal/compact", "redisadapter/internal/engine",
			"redisadapter/internal/full", "redisadapter/internal/guard",
			"redisadapter/internal/line", "redisadapter/internal/wake",
			"redisadapter/internal/wire", goRedis},
		tests: []string{"dedup/deduptest", "dedup/layered", "internal/advice/advicetest",
			"internal/redistest", "internal/redisproxy", "internal/servertest", miniredis},
	},
	"redisadapter/internal/wire": {
		imports: []string{"dedup/driver", "internal/advice", "internal/redisscript",
			"dedup/preflight", goRedis},
		tests: []string{"dedup", "internal/advice/advicetest", "internal/redistest"},
	},
	"redisadapter/internal/guard": {
		imports: []string{"dedup/driver", "internal/redisscript", "dedup/preflight",
			"redisadapter/internal/wire", goRedis},
	},
	"redisadapter/internal/line": {
		imports: []string{"dedup/driver", "internal/backoff", "internal/redisscript",
			"redisadapter/internal/wire", goRedis},
	},
	"redisadapter/internal/wake": {imports: []string{goRedis}},
	"redisadapter/internal/engine": {
		imports: []string{"dedup/driver", "internal/redisscript",
			"redisadapter/internal/guard",
			"redisadapter/internal/line", "redisadapter/internal/wire"},
	},
	"redisadapter/internal/full": {
		imports: []string{"dedup/driver", "internal/redisscript",
			"redisadapter/internal/engine",
			"redisadapter/internal/line", "redisadapter/internal/wire", goRedis},
	},
	"redisadapter/internal/compact": {
		imports: []string{"dedup/driver", "internal/redisscript",
			"redisadapter/internal/engine",
			"redisadapter/internal/guard", "redisadapter/internal/wire", goRedis},
	},
	"bloom": {imports: []string{bits}},
	"lease": {
		imports: []string{"internal/backoff", "internal/redisscript", goRedis},
		tests: []string{"dedup", "internal/redistest", "internal/redisproxy",
			"internal/servertest", miniredis},
	},
	"sqladapter": {
		imports: []string{"dedup", "dedup/driver", "internal/backoff", "internal/sqlerr",
			"internal/sqlmigrate", "internal/sqlname", "sqladapter/internal/dialect",
			"sqladapter/migration", "sqladapter/native"},
		tests: []string{"sqladapter/internal/sqlscript"},
	},
	"sqladapter/native": {},
	"sqladapter/internal/dialect": {
		imports: []string{"dedup/driver", "internal/sqlerr", "internal/sqlname"},
	},
	"sqladapter/internal/sqlscript": {role: testOnly},
	"sqladapter/migration": {
		imports: []string{"internal/sqlmigrate", "sqladapter/internal/dialect"},
	},
	"sqladapter/sqlpreflight": {
		imports: []string{"dedup/preflight", "internal/advice", "internal/sqlerr",
			"internal/sqlname", "sqladapter/internal/dialect"},
		tests: []string{"dedup", "internal/advice/advicetest", "sqladapter",
			"sqladapter/internal/sqlscript"},
	},
	"sqladapter/sqlserver": {imports: []string{"sqladapter/internal/dialect"}},
	"sqladapter/sqlstore": {
		imports: []string{"dedup", "dedup/driver", "internal/backoff", "internal/sqlerr",
			"internal/sqlmigrate", "internal/sqlname", "sqladapter/internal/dialect",
			"sqladapter/migration", "sqladapter/native"},
		tests: []string{"dedup/deduptest", "sqladapter/internal/sqlscript"},
	},
	"sqladapter/pgxv5": {
		imports: []string{"dedup", "sqladapter", "sqladapter/native", "sqladapter/sqlstore", pgx},
	},
	"outbox": {
		imports: []string{"internal/backoff", "internal/sqlerr", "internal/sqlmigrate",
			"internal/sqlname"},
		tests: []string{"internal/servertest"},
	},
	"outbox/internal/batchsplit": {imports: []string{"outbox"}},
	"outbox/saramapub": {imports: []string{"outbox", "outbox/internal/batchsplit", sarama},
		tests: []string{franzGo}},
	"outbox/pgxlisten": {imports: []string{"dedup/driver", "internal/backoff", "outbox", pgx}},
	"outbox/franzpub":  {imports: []string{"outbox", "outbox/internal/batchsplit", franzGo}},
	"outbox/natspub":   {imports: []string{"outbox", natsGo}},
	"outbox/rabbitpub": {imports: []string{"outbox", amqp}},
	"outbox/webhookpub": {imports: []string{"outbox"},
		tests: []string{"httpadapter/webhook"}},
	"kafkaadapter": {
		imports: []string{"dedup", "dedup/driver", "kafkaadapter/internal/deadletter",
			"kafkaadapter/internal/msgid"},
		tests: []string{"sqladapter"},
	},
	"kafkaadapter/kafkadriver": {
		imports: []string{"dedup", "dedup/driver", "internal/backoff", "kafkaadapter",
			"kafkaadapter/internal/pipeline", "kafkaadapter/internal/deadletter",
			"kafkaadapter/internal/msgid"},
	},
	"kafkaadapter/kafkadriver/drivertest": {
		role: testOnly,
		imports: []string{"dedup", "dedup/driver", "kafkaadapter", "kafkaadapter/kafkadriver",
			testify},
	},
	"kafkaadapter/kafkasarama": {
		imports: []string{"dedup", "dedup/driver", "internal/backoff", "kafkaadapter",
			"kafkaadapter/internal/pipeline", "kafkaadapter/internal/groupmember",
			"kafkaadapter/internal/msgid", "kafkaadapter/kafkadriver", sarama},
		tests: []string{"dedup/deduptest"},
	},
	"kafkaadapter/kafkafranz": {
		imports: []string{"dedup", "dedup/driver", "kafkaadapter", "kafkaadapter/kafkadriver",
			franzGo},
		tests: []string{"kafkaadapter/kafkadriver/drivertest"},
	},
	"kafkaadapter/kafkasegmentio": {
		imports: []string{"dedup", "kafkaadapter", "kafkaadapter/kafkadriver", kafkaGo},
		tests:   []string{"kafkaadapter/kafkadriver/drivertest", franzGo},
	},
	"kafkaadapter/kafkaconfluent": {
		imports: []string{"dedup", "dedup/driver", "kafkaadapter", "kafkaadapter/kafkadriver",
			confluent},
		tests: []string{"kafkaadapter/kafkadriver/drivertest", franzGo},
	},
	"kafkaadapter/internal/deadletter": {imports: []string{"dedup", "dedup/driver",
		"kafkaadapter/internal/msgid"}},
	"kafkaadapter/internal/groupmember": {imports: []string{"dedup", "internal/backoff", sarama}},
	"kafkaadapter/internal/msgid":       {imports: []string{"dedup/driver"}},
	"kafkaadapter/txn": {
		imports: []string{"dedup", "internal/backoff", "kafkaadapter/internal/groupmember",
			"kafkaadapter/internal/msgid", sarama},
		tests: []string{"kafkaadapter/kafkasarama"},
	},
	"kafkaadapter/internal/pipeline": {
		imports: []string{"internal/backoff"},
		tests:   []string{"dedup"},
	},

	"httpadapter": {
		imports: []string{"dedup", "dedup/driver", "httpadapter/internal/problem",
			"internal/ctxdetach",
			"internal/keyname", "internal/quota", "internal/encrypted"},
		tests: []string{"dedup/deduptest"},
	},
	"httpadapter/webhook": {
		imports: []string{"dedup", "dedup/driver", "httpadapter", "httpadapter/internal/problem",
			"internal/ctxdetach", "internal/keyname", "internal/encrypted"},
		tests: []string{"dedup/deduptest", "internal/redistest", "redisadapter"},
	},
	"httpadapter/internal/problem": {},
	"contrib/grpcadapter": {imports: []string{"dedup", "dedup/driver", "httpadapter",
		"internal/ctxdetach",
		"internal/keyname", "internal/quota", "internal/encrypted", grpcGo, protobuf, genproto},
		tests: []string{"dedup/deduptest"}},
	"contrib/mcpadapter": {imports: []string{"dedup", "dedup/driver", "httpadapter", mcpSDK,
		schemaGo}},
	"contrib/watermilladapter": {imports: []string{"dedup", watermill}},
	"contrib/owned": {
		imports: []string{"bloom", "contrib/owned/internal/script", "dedup", "dedup/driver",
			goRedis},
		tests: []string{"dedup/deduptest", "internal/redistest", "internal/servertest",
			"kafkaadapter", "kafkaadapter/kafkasarama", "redisadapter"},
	},
	"contrib/owned/internal/script": {imports: []string{goRedis},
		tests: []string{"internal/redistest", "internal/servertest"}},
	"console": {imports: []string{"dedup", "dedup/driver", "internal/keyname",
		"internal/keyspec", "internal/settle"},
		tests: []string{"httpadapter", "httpadapter/webhook"}},
	"queue": {imports: []string{"dedup", "dedup/driver", "internal/backoff"},
		tests: []string{"dedup/deduptest", "queue/queuetest"}},
	"queue/queuetest": {role: testOnly,
		imports: []string{"dedup", "dedup/deduptest", "dedup/driver", "queue"}},
	"queue/natsqueue": {imports: []string{"dedup", "queue", natsGo},
		tests: []string{"internal/servertest/redisrecords", "queue/queuetest", natsSrv}},
	"queue/pubsubqueue": {imports: []string{"dedup", "queue", pubsub},
		tests: []string{"internal/servertest/redisrecords", "queue/queuetest", googleAPI,
			grpcGo}},
	"queue/rabbitqueue": {imports: []string{"dedup", "queue", amqp},
		tests: []string{"internal/servertest", "internal/servertest/redisrecords",
			"queue/queuetest"}},
	"queue/sqsqueue": {imports: []string{"dedup", "queue", awsGo},
		tests: []string{"internal/servertest", "internal/servertest/redisrecords",
			"queue/queuetest"}},
	"queue/redisqueue": {imports: []string{"dedup", "queue", goRedis},
		tests: []string{"internal/servertest", "internal/servertest/redisrecords",
			"queue/queuetest"}},
	"dedup/preflight": {},
	"retry": {imports: []string{"internal/backoff"},
		tests: []string{"dedup", "httpadapter"}},

	"contrib/telemetry": {
		imports: []string{"dedup", "dedup/driver", "httpadapter", "outbox", "retry",
			"contrib/telemetry/internal/meter",
			"contrib/telemetry/internal/span", otelAPI, otelMetric, otelTrace},
		tests: []string{"dedup/deduptest", "kafkaadapter", "dedup/preflight", "redisadapter",
			"contrib/telemetry/kafkametric", "contrib/telemetry/redismetric",
			"contrib/telemetry/internal/metrictest", "internal/servertest", goRedis, otel,
			prometheus, yaml},
	},
	"contrib/telemetry/redismetric": {imports: []string{"dedup/preflight", "redisadapter",
		"contrib/telemetry/internal/meter", otelAPI, otelMetric},
		tests: []string{"internal/servertest", "contrib/telemetry/internal/metrictest",
			goRedis, otel}},
	"contrib/telemetry/internal/metrictest": {role: testOnly,
		imports: []string{"kafkaadapter", otel}},
	"contrib/telemetry/internal/spantest": {role: testOnly, imports: []string{"dedup", "dedup/driver", otel}},
	"contrib/telemetry/kafkametric": {imports: []string{"kafkaadapter",
		"contrib/telemetry/internal/meter", otelAPI, otelMetric},
		tests: []string{"contrib/telemetry/internal/metrictest", otel}},
	"contrib/telemetry/kafkatrace": {imports: []string{"dedup/driver", "kafkaadapter",
		"contrib/telemetry/internal/span", otelCarry, otelTrace},
		tests: []string{"contrib/telemetry/internal/spantest", otel}},
	"contrib/telemetry/httptrace": {imports: []string{"dedup", "httpadapter",
		"contrib/telemetry", otelCarry}, tests: []string{otel}},
	"contrib/telemetry/internal/span": {imports: []string{"dedup", "dedup/driver",
		"contrib/telemetry/internal/meter", otelAPI, otelCarry, otelCodes, otelTrace},
		tests: []string{otel}},
	"contrib/telemetry/internal/meter": {imports: []string{otelAPI, otelMetric}},

	"internal/advice": {imports: []string{"dedup/preflight"}},
	"internal/advice/advicetest": {role: testOnly,
		imports: []string{"internal/advice", testify}},
	"internal/backoff":   {},
	"internal/encrypted": {imports: []string{"dedup", "dedup/driver"}},
	"internal/settle":    {imports: []string{"dedup", "dedup/driver"}},
	"internal/ctxdetach": {},
	"internal/keyname":   {imports: []string{"dedup", "dedup/driver", "internal/encrypted"}},
	"internal/keyspec": {imports: []string{"dedup", "dedup/driver", "httpadapter",
		"httpadapter/webhook",
		"internal/keyname"}},
	"internal/quota":  {},
	"internal/sqlerr": {},
	"internal/sqlmigrate": {imports: []string{"internal/backoff", "internal/sqlerr",
		"internal/sqlname"}},
	"internal/sqlname": {},
	"internal/redisscript": {imports: []string{goRedis},
		tests: []string{"internal/redistest", "internal/servertest", miniredis}},

	"internal/redistest": {role: testOnly,
		imports: []string{"internal/servertest", goRedis, miniredis}},
	"internal/redisproxy": {role: testOnly,
		tests: []string{"internal/redistest", "internal/servertest", goRedis, miniredis}},
	"internal/servertest": {role: testOnly},
	"internal/servertest/redisrecords": {role: testOnly,
		imports: []string{"dedup", "internal/servertest", "dedup/preflight", "queue/queuetest",
			"redisadapter", goRedis}},

	"internal/arch":       {role: tool, tests: []string{"internal/racebuild"}},
	"internal/racebuild":  {role: testOnly},
	"internal/skipreport": {role: tool},
	"internal/prose":      {role: tool},
	"internal/testreport": {role: tool},
}

// libraries are nested modules that users import. They keep the rules of the table; programs and
// tests may import them, and no other library.
var libraries = []string{
	"contrib/grpcadapter", "contrib/mcpadapter", "contrib/owned", "contrib/telemetry",
	"contrib/watermilladapter",
	"kafkaadapter/kafkaconfluent", "kafkaadapter/kafkafranz", "kafkaadapter/kafkasegmentio",
	"outbox/franzpub", "outbox/natspub", "outbox/pgxlisten", "outbox/rabbitpub",
	"outbox/saramapub", "queue/natsqueue", "queue/pubsubqueue", "queue/rabbitqueue",
	"queue/redisqueue", "queue/sqsqueue",
	"sqladapter/pgxv5",
}

// importers are the nested modules that import libraries.
var importers = []string{"bench", "cmd", "examples", "internal/integration"}

// drivers are database drivers: users bring their own. A package may link the one that its row
// names.
var drivers = []string{
	"github.com/jackc/pgx", "github.com/lib/pq", "github.com/go-sql-driver/mysql",
	"github.com/microsoft/go-mssqldb",
	"modernc.org/sqlite", "github.com/mattn/go-sqlite3", "github.com/ncruces/go-sqlite3",
}

// core is the package that may depend on nothing but its own contract and internal, and export no
// more than coreExports names. The methods of its interfaces come with their type, as
// does Error with an error. The number may only go down.
const (
	core        = "dedup"
	coreExports = 70
)
