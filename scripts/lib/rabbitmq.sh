# shellcheck shell=bash
# RabbitMQ, from Debian's package. Node 1 is the broker. Node 2 is Erlang's name server (epmd), on a
# port of its own: the one of the machine, which RabbitMQ would start, would outlive us.
# DIR/ctl is rabbitmqctl for this server.

rabbitmq_nodes=2 rabbitmq_span=3 # AMQP, Erlang's distribution, epmd
rabbitmq_stopsig=KILL

# Those in /usr/sbin want to be run by root, and switch to the user rabbitmq.
RABBITMQ_BIN=/usr/lib/rabbitmq/bin

# rabbitmq_env DIR: the environment of the broker and of rabbitmqctl. The cookie that lets one talk
# to the other is in HOME.
rabbitmq_env() {
  local port
  port=$(cat "$1/port")
  printf '%s\n' "HOME=$1/home" "ERL_EPMD_PORT=$((port + 2))" ERL_EPMD_ADDRESS=127.0.0.1 \
    RABBITMQ_NODENAME=onceward@localhost "RABBITMQ_DIST_PORT=$((port + 1))" \
    "RABBITMQ_CONF_ENV_FILE=$1/none" "RABBITMQ_CONFIG_FILE=$1/rabbitmq.conf" \
    "RABBITMQ_ENABLED_PLUGINS_FILE=$1/none" "RABBITMQ_MNESIA_BASE=$1/1/data" RABBITMQ_LOGS=- \
    RUNNING_UNDER_SYSTEMD=true # so that the shell becomes the broker
}

rabbitmq_prepare() {
  local env
  [ -x "$RABBITMQ_BIN/rabbitmq-server" ] || die "RabbitMQ is not there; run: $0 install"
  mkdir -p "$1/home" "$1/1/data"
  printf '%s\n' "listeners.tcp.1 = 127.0.0.1:$(cat "$1/port")" "max_message_size = 2000000" \
    > "$1/rabbitmq.conf"
  mapfile -t env < <(rabbitmq_env "$1")
  {
    echo '#!/bin/sh'
    printf 'exec env'
    printf ' %q' "${env[@]}" "$RABBITMQ_BIN/rabbitmqctl"
    echo ' "$@"'
  } > "$1/ctl"
  spawn "$1" 2 "" epmd -port "$(($(cat "$1/port") + 2))" -address 127.0.0.1
}
rabbitmq_launch() {
  local env
  [ "$2" = 1 ] || return 0
  mapfile -t env < <(rabbitmq_env "$1")
  spawn "$1" 1 "" env "${env[@]}" \
    'RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1} +S 1:1' \
    "$RABBITMQ_BIN/rabbitmq-server"
}
rabbitmq_ready() {
  [ "$2" = 2 ] || grep -q 'Server startup complete' "$1/1/log"
}
rabbitmq_finish() { :; }
rabbitmq_url() { echo "amqp://guest:guest@127.0.0.1:$(cat "$1/port")/"; }
