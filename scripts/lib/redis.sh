# shellcheck shell=bash
# Redis: one server with an append-only file, one behind TLS, a primary with a replica and with
# Sentinels, a Cluster of six. ONCEWARD_REDIS_SERVER names another program than redis-server, such
# as a newer Redis or Valkey.

# What `down` sends: the data is thrown away, so nothing need be saved first.
redis_stopsig=KILL redis_tls_stopsig=KILL redis_pair_stopsig=KILL redis_sentinel_stopsig=KILL
redis_cluster_stopsig=KILL redis_clock_stopsig=KILL

redis_nodes=1 redis_span=1
redis_tls_nodes=1 redis_tls_span=1
redis_clock_nodes=1 redis_clock_span=1
redis_pair_nodes=2 redis_pair_span=2
redis_sentinel_nodes=5 redis_sentinel_span=5
redis_cluster_nodes=6 redis_cluster_span=12 # six client ports, then six bus ports

redis_port() { echo $(($(cat "$1/port") + $2 - 1)); }

# redis_start DIR NODE EXTRA...: options every kind shares. No dataset snapshots: the append-only
# file is the durability under test. DEBUG is open to loopback so that tests can stall a server.
redis_start() {
  local dir=$1 node=$2
  shift 2
  mkdir -p "$dir/$node/data"
  spawn "$dir" "$node" "" "${ONCEWARD_REDIS_SERVER:-redis-server}" \
    --bind 127.0.0.1 --port "$(redis_port "$dir" "$node")" --dir "$dir/$node/data" \
    --daemonize no --save "" --appendonly yes --appendfsync everysec \
    --maxmemory-policy noeviction --enable-debug-command local "$@"
}

redis_ask() { # DIR NODE COMMAND...
  local port
  port=$(redis_port "$1" "$2")
  shift 2
  timeout 5 redis-cli -h 127.0.0.1 -p "$port" "$@" 2> /dev/null
}
redis_answers() { [ "$(redis_ask "$1" "$2" PING)" = PONG ]; }

redis_prepare() { :; }
redis_launch() { redis_start "$1" "$2"; }
redis_ready() { redis_answers "$1" "$2"; }
redis_finish() { :; }

redis_clock_prepare() { clock_prepare "$1"; }
redis_clock_launch() { shifted "$1" redis_start "$1" "$2"; }
redis_clock_ready() { redis_answers "$1" "$2"; }
redis_clock_finish() { :; }

redis_pair_prepare() { :; }
redis_pair_launch() {
  if [ "$2" = 1 ]; then
    redis_start "$1" 1 --repl-diskless-sync-delay 0 --repl-ping-replica-period 1
  else
    redis_start "$1" "$2" --replicaof 127.0.0.1 "$(redis_port "$1" 1)"
  fi
}
redis_pair_ready() { redis_answers "$1" "$2"; }
redis_pair_finish() { wait_until 30 "$1" 2 redis_replica_linked "$1"; }
# The replica's word alone is early: for a moment the primary goes on calling it wait_bgsave.
redis_replica_linked() {
  redis_ask "$1" 2 INFO replication | grep -q '^master_link_status:up' &&
    redis_ask "$1" 1 INFO replication | grep -q '^slave0:.*state=online'
}

# TLS only, with a throw-away CA, and the user that redisadapter ships beside one who may do
# everything. Tests read ca.crt from DIR.
redis_tls_prepare() {
  redis_tls_certificates "$1" > "$1/openssl.log" 2>&1 || {
    say "servers: no certificates; read $1/openssl.log, which ends:"
    tail -n 15 "$1/openssl.log" >&2
    return 1
  }
  { cat "$HERE/../redisadapter/users.acl" && echo 'user default on >admin ~* &* +@all'; } > "$1/users.acl"
}
# Called where bash ignores `set -e`, hence the chain.
redis_tls_certificates() {
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 \
    -subj '/CN=throw-away CA' -keyout "$1/ca.key" -out "$1/ca.crt" &&
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes \
      -subj '/CN=127.0.0.1' -keyout "$1/server.key" -out "$1/server.csr" &&
    openssl x509 -req -in "$1/server.csr" -CA "$1/ca.crt" -CAkey "$1/ca.key" -CAcreateserial -days 2 \
      -extfile <(echo 'subjectAltName=IP:127.0.0.1') -out "$1/server.crt"
}
redis_tls_launch() {
  redis_start "$1" "$2" --port 0 --tls-port "$(redis_port "$1" "$2")" --tls-auth-clients no \
    --tls-cert-file "$1/server.crt" --tls-key-file "$1/server.key" --tls-ca-cert-file "$1/ca.crt" \
    --aclfile "$1/users.acl"
}
redis_tls_ready() { [ "$(redis_ask "$1" "$2" --tls --cacert "$1/ca.crt" --no-auth-warning -a admin PING)" = PONG ]; }
redis_tls_finish() { :; }

# Nodes 1 and 2 are a pair, 3 to 5 its Sentinels, who call the primary "onceward" and believe it
# dead after a second. A Sentinel rewrites its file, so a restart keeps what it knew.
redis_sentinel_prepare() {
  local i
  for i in 3 4 5; do
    mkdir -p "$1/$i/data"
    cat > "$1/$i/sentinel.conf" << EOF
bind 127.0.0.1
port $(redis_port "$1" "$i")
dir "$1/$i/data"
sentinel monitor onceward 127.0.0.1 $(redis_port "$1" 1) 2
sentinel down-after-milliseconds onceward 1000
sentinel failover-timeout onceward 3000
EOF
  done
}
redis_sentinel_launch() {
  if [ "$2" -le 2 ]; then
    redis_pair_launch "$1" "$2"
  else
    spawn "$1" "$2" "" "${ONCEWARD_REDIS_SERVER:-redis-server}" "$1/$2/sentinel.conf" --sentinel
  fi
}
redis_sentinel_ready() { redis_answers "$1" "$2"; }
# Until every Sentinel knows the replica and both others, there is no majority to promote with.
redis_sentinel_finish() {
  local i
  redis_pair_finish "$1"
  for i in 3 4 5; do wait_until 30 "$1" "$i" redis_sentinel_formed "$1" "$i"; done
}
redis_sentinel_formed() {
  redis_ask "$1" "$2" INFO sentinel | grep -q '^master0:name=onceward,status=ok,.*slaves=1,sentinels=3'
}

redis_cluster_prepare() { :; }
# A node timeout of two seconds lets a test see a failover without waiting for it for long.
redis_cluster_launch() {
  redis_start "$1" "$2" --cluster-enabled yes --cluster-config-file nodes.conf \
    --cluster-port "$(($(redis_port "$1" "$2") + 6))" --cluster-announce-ip 127.0.0.1 \
    --cluster-node-timeout 2000 --repl-diskless-sync-delay 0
}
redis_cluster_ready() { redis_answers "$1" "$2"; }
redis_cluster_finish() {
  local i port nodes=()
  for i in 1 2 3 4 5 6; do
    port=$(redis_port "$1" "$i")
    nodes+=("127.0.0.1:$port@$((port + 6))")
  done
  redis-cli --cluster create "${nodes[@]}" --cluster-replicas 1 --cluster-yes > "$1/create.log" 2>&1 || {
    say "servers: the Cluster was not formed; read $1/create.log, which ends:"
    tail -n 15 "$1/create.log" >&2
    return 1
  }
  for i in 1 2 3 4 5 6; do wait_until 30 "$1" "$i" redis_cluster_formed "$1" "$i"; done
}
# Every node must know three masters and three replicas of them, or a client that asks the
# last node first builds its slot table without replicas; and both ends of each link must
# call it whole.
redis_cluster_formed() {
  redis_ask "$1" "$2" CLUSTER INFO | grep -q '^cluster_state:ok' &&
    redis_ask "$1" "$2" INFO replication | grep -q '^master_link_status:up\|^slave0:.*state=online' &&
    [ "$(redis_ask "$1" "$2" CLUSTER NODES | grep -c ' \(myself,\)\?slave ')" = 3 ]
}
