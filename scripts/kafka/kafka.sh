# shellcheck shell=bash
# Apache Kafka in KRaft mode from Maven Central's jars: nodes that are broker and controller at once.
# Node i of a server listens on PORT+2(i-1), its controller on the port after it.

kafka1_nodes=1 kafka1_span=2
kafka3_nodes=3 kafka3_span=6
kafka1_stopsig=KILL kafka3_stopsig=KILL # the data is thrown away: no need for a controlled shutdown

KAFKA_VERSION=${ONCEWARD_KAFKA_VERSION:-4.3.1}
KAFKA_CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/onceward/kafka-$KAFKA_VERSION
KAFKA_CLUSTER_ID=b25jZXdhcmQtdGVzdHMtMQ

kafka_java() { echo "${JAVA_HOME:+$JAVA_HOME/bin/}java"; }
kafka_cached() { [ -f "$KAFKA_CACHE/formatted/bootstrap.checkpoint" ]; }
kafka_classpath() { find "$KAFKA_CACHE/libs" -name '*.jar' | sort | paste -sd: -; }
kafka_broker_port() { echo $(($(cat "$1/port") + 2 * ($2 - 1))); }

# kafka_run OPTIONS... CLASS ARGS...: one core, a small heap, and no optimizing compiler: tests
# start brokers more often than they saturate them.
kafka_run() {
  "$(kafka_java)" -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xss512k -XX:+ExitOnOutOfMemoryError \
    -Djava.awt.headless=true -Djava.net.preferIPv4Stack=true \
    "-Dlog4j2.configurationFile=$HERE/kafka/log4j2.xml" -cp "$(kafka_classpath)" "$@"
}

# kafka_fetch copies the jars into the cache and formats an empty log directory once: a copy of it
# with other ids is what `kafka-storage format` would write, without a JVM start per node. All of
# it is made beside its place and moved there whole, so that an interrupted run leaves no half.
kafka_fetch() {
  kafka_cached && return
  local tmp
  mkdir -p "$(dirname "$KAFKA_CACHE")"
  tmp=$(mktemp -d "$KAFKA_CACHE.XXXXXX")
  say "servers: fetching Apache Kafka $KAFKA_VERSION"
  cp "$HERE/kafka/pom.xml" "$tmp/pom.xml" # Maven writes beside its pom
  mvn -q -B -f "$tmp/pom.xml" "-Dkafka.version=$KAFKA_VERSION" dependency:copy-dependencies \
    -DincludeScope=runtime "-DoutputDirectory=$tmp/libs" < /dev/null > "$tmp/fetch.log" 2>&1 ||
    die "Maven could not fetch Apache Kafka $KAFKA_VERSION; read $tmp/fetch.log"
  printf '%s\n' process.roles=broker,controller node.id=1 controller.quorum.voters=1@127.0.0.1:1 \
    controller.listener.names=C listeners=P://127.0.0.1:2,C://127.0.0.1:1 \
    inter.broker.listener.name=P listener.security.protocol.map=C:PLAINTEXT,P:PLAINTEXT \
    "log.dirs=$tmp/formatted" > "$tmp/format.properties"
  KAFKA_CACHE=$tmp kafka_run -Xmx128m kafka.tools.StorageTool format -t "$KAFKA_CLUSTER_ID" \
    -c "$tmp/format.properties" >> "$tmp/fetch.log" 2>&1 ||
    die "the log directory was not formatted; read $tmp/fetch.log"
  rm -rf "$KAFKA_CACHE"
  mv "$tmp" "$KAFKA_CACHE"
}

kafka_voters() { # DIR
  local i out=
  for ((i = 1; i <= $(cat "$1/nodes"); i++)); do
    out+=",$i@127.0.0.1:$(($(kafka_broker_port "$1" "$i") + 1))"
  done
  echo "${out#,}"
}

kafka_prepare() {
  local i n
  kafka_cached || die "Apache Kafka is not in $KAFKA_CACHE; run: $0 install"
  n=$(cat "$1/nodes")
  for ((i = 1; i <= n; i++)); do
    mkdir -p "$1/$i/data"
    kafka_properties "$1" "$i" "$n" > "$1/$i/server.properties"
    cp "$KAFKA_CACHE/formatted/bootstrap.checkpoint" "$1/$i/data/"
    printf '%s\n' version=1 "cluster.id=$KAFKA_CLUSTER_ID" "node.id=$i" \
      "directory.id=b25jZXdhcmQtbm9kZS0w${i}A" > "$1/$i/data/meta.properties"
  done
}

kafka_properties() { # DIR NODE NODES
  local port isr=$(($3 > 1 ? 2 : 1))
  port=$(kafka_broker_port "$1" "$2")
  cat << P
process.roles=broker,controller
node.id=$2
controller.quorum.voters=$(kafka_voters "$1")
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$((port + 1))
advertised.listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$((port + 1))
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs=$1/$2/data
auto.create.topics.enable=false
num.partitions=1
default.replication.factor=$3
min.insync.replicas=$isr
offsets.topic.replication.factor=$3
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=$3
transaction.state.log.min.isr=$isr
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=$3
share.coordinator.state.topic.min.isr=$isr
share.coordinator.state.topic.num.partitions=4
# Short timeouts, so that tests of rebalance and failover take seconds.
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=500
group.consumer.min.session.timeout.ms=500
group.consumer.session.timeout.ms=3000
group.consumer.min.heartbeat.interval.ms=200
group.consumer.heartbeat.interval.ms=500
transaction.abort.timed.out.transaction.cleanup.interval.ms=1000
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=3000
replica.lag.time.max.ms=5000
# A small footprint. The cleaner's buffer is 128 MiB unless told otherwise, half of our heap.
num.network.threads=2
num.io.threads=2
background.threads=2
group.coordinator.threads=1
log.cleaner.threads=1
log.cleaner.dedupe.buffer.size=4194304
log.segment.bytes=16777216
log.index.size.max.bytes=1048576
P
}

kafka_launch() {
  local nd=$1/$2
  spawn "$1" "$2" "" "$(kafka_java)" -Xms64m -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 \
    -XX:MaxDirectMemorySize=128m -Xss512k -XX:+ExitOnOutOfMemoryError \
    -Djava.awt.headless=true -Djava.net.preferIPv4Stack=true \
    "-Dlog4j2.configurationFile=$HERE/kafka/log4j2.xml" "-Dkafka.logs.dir=$nd" \
    -cp "$(kafka_classpath)" kafka.Kafka "$nd/server.properties"
}
# A broker says that it has started only after the controller has let it in.
kafka_ready() { grep -q 'Kafka Server started' "$1/$2/log"; }

# The internal topics are made when a coordinator is first asked for. Asking here means that no
# test pays for it, and that three brokers really form one cluster.
kafka_finish() {
  local type
  for type in 0 1; do wait_until 60 "$1" 1 kafka_coordinator "$(kafka_broker_port "$1" 1)" $type; done
}
# kafka_coordinator PORT TYPE: FindCoordinator (api 10, version 1) for a group (0) or a transaction
# (1), by hand; succeeds when the answer's error code is zero.
kafka_coordinator() {
  local code
  code=$(timeout 5 bash -c '
    exec 3<> "/dev/tcp/127.0.0.1/$1"
    printf "\0\0\0\x12\0\x0a\0\x01\0\0\0\x01\xff\xff\0\x05ready\\x0$2" >&3
    head -c 14 <&3 | od -An -tx1 | tr -d " \n"' _ "$1" "$2" 2> /dev/null) || return 1
  [ "${code:24:4}" = 0000 ]
}

kafka1_prepare() { kafka_prepare "$@"; }
kafka1_launch() { kafka_launch "$@"; }
kafka1_ready() { kafka_ready "$@"; }
kafka1_finish() { kafka_finish "$@"; }
kafka3_prepare() { kafka_prepare "$@"; }
kafka3_launch() { kafka_launch "$@"; }
kafka3_ready() { kafka_ready "$@"; }
kafka3_finish() { kafka_finish "$@"; }
