#!/usr/bin/env bash
#
# A real S3 server on one machine: Ceph's RADOS Gateway on the loopback, as an ordinary user's processes. No container, no
# systemd. The tests run against it because it does what S3 does and simulators do not: of many racing
# `PUT … If-None-Match: *` exactly one is answered 200, all others 412.
#
#   tests/servers/rgw.sh start      install if need be, start, print the endpoint; does nothing when it already runs
#   eval "$(tests/servers/rgw.sh env)"                endpoint and credentials for the AWS command line, boto3 and so on
#   tests/servers/rgw.sh status     the endpoint, or exit code 1
#   tests/servers/rgw.sh stop       end what `start` started, and forget all data
#   tests/servers/rgw.sh install    only install the packages: Debian's or Ubuntu's, as root
#
# Three processes. The monitor (ceph-mon) knows the cluster's map; the object store daemon (ceph-osd) keeps the objects, in
# memory, so nothing outlives it; the gateway (radosgw) speaks HTTP. An installation proper has several of the first two, a
# manager, and keys between them; one machine that forgets everything needs none of that.
#
# Settings, all from the environment:
#   MC_RGW_DIR       folder for state and logs; only your own is used     ${TMPDIR:-/tmp}/manifestcommit-rgw
#   MC_RGW_PORT      the gateway's port                                   7491
#   MC_RGW_MON_PORT  the monitor's port                                   7492
#   MC_RGW_KEY       access key                                           mc-test-key
#   MC_RGW_SECRET    secret key; slash, plus and equals as in real ones   mc/test+secret=
#   MC_RGW_FOR_PID   stop by itself once that process has ended (a test run that was killed leaves nothing behind)
#
# Exit codes: 0 done, 1 failed, 2 usage, 69 there is no gateway here and this script cannot install one.

set -euo pipefail

fail() {
  echo "rgw.sh: $1" >&2
  exit "${2:-1}"
}

[ "$(uname)" = Linux ] || fail "there are packages of it for Linux only" 69

script=$(realpath "${BASH_SOURCE[0]}")
given=${MC_RGW_DIR:-${TMPDIR:-/tmp}/manifestcommit-rgw}
while [[ $given == ?*/ ]]; do given=${given%/}; done
[ ! -L "$given" ] || fail "$given is a symbolic link: what is behind it may be anybody's. Remove it, or set MC_RGW_DIR to a folder of your own"
folder=$(realpath -m "$given")
# All processes carry the folder's full name from their first moment on, see `alive`: so this one must have been given it.
[ "${MC_RGW_DIR:-}" = "$folder" ] || MC_RGW_DIR=$folder exec "$script" "$@"
port=${MC_RGW_PORT:-7491}
mon_port=${MC_RGW_MON_PORT:-7492}
key=${MC_RGW_KEY:-mc-test-key}
secret=${MC_RGW_SECRET:-mc/test+secret=}

cluster=$MC_RGW_DIR/cluster # everything that one start makes and one stop removes
ready=$cluster/env      # written last: what `env` prints

unset PYTHONPATH PYTHONHOME # the `ceph` command is the system's Python, whatever environment the caller is in

# The folder's name can be guessed, and in /tmp anybody can make it first: what others can write is neither read nor removed.
check_own() {
  [ -d "$MC_RGW_DIR" ] && [ ! -L "$MC_RGW_DIR" ] || fail "$MC_RGW_DIR is no folder. Remove it, or set MC_RGW_DIR to a folder of your own"
  local owner mode
  read -r owner mode < <(stat -c '%u %a' "$MC_RGW_DIR")
  [ "$owner" = "$(id -u)" ] || fail "$MC_RGW_DIR belongs to user $owner, not to you. Set MC_RGW_DIR to a folder of your own"
  (((8#$mode & 8#022) == 0)) || fail "others may write into $MC_RGW_DIR (mode $mode). Set MC_RGW_DIR to a folder of your own"
  chmod 700 "$MC_RGW_DIR"
}

# One start or stop at a time per folder. Whoever comes second waits, and finds the work done.
lock() {
  mkdir -p "$(dirname "$MC_RGW_DIR")"
  mkdir -m 700 "$MC_RGW_DIR" 2>/dev/null || true # there already: whose it is, is looked at next
  check_own
  exec 9>"$MC_RGW_DIR/lock"
  flock 9
}

# Is the process NAME, as this script started it, still there? Pids are used again, so the number alone proves nothing: ours
# carry the name of our folder in their environment. A dead process that nobody has collected yet shows none.
alive() {
  local pid
  pid=$(cat "$cluster/$1.pid" 2>/dev/null) && [[ $pid =~ ^[0-9]+$ ]] && grep -qzxF "MC_RGW_DIR=$MC_RGW_DIR" "/proc/$pid/environ" 2>/dev/null
}

running() { [ -e "$ready" ] && alive mon && alive osd && alive rgw; }

listening() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# spawn NAME COMMAND…: a session of its own, so that Ctrl-C in a terminal does not reach it; it must not inherit the lock.
spawn() {
  local name=$1
  shift
  setsid "$@" >"$cluster/$name.log" 2>&1 </dev/null 9>&- &
  echo $! >"$cluster/$name.pid"
  disown # no word from the shell when it ends
}

# until_true SECONDS NAME COMMAND…: wait for the command to succeed, for as long as the process NAME lives.
until_true() {
  local tries=$(($1 * 20)) name=$2
  shift 2
  until "$@"; do
    # A process that is just becoming another program shows no environment for a moment.
    alive "$name" || { sleep 0.5; alive "$name"; } || fail "$name ended before it was ready"
    [ $((tries -= 1)) -gt 0 ] || fail "$name was not ready in time"
    sleep 0.05
  done
}

# end NAME: by its pid, and wait. There is no state to save, so there is nothing to ask it to finish.
end() {
  alive "$1" || return 0
  kill -KILL "$(cat "$cluster/$1.pid")" 2>/dev/null || true
  while alive "$1"; do sleep 0.02; done
}

end_all() {
  for name in watch rgw osd mon; do end "$name"; done
}

install_packages() {
  local missing=()
  for name in ceph-mon ceph-osd radosgw; do command -v "$name" >/dev/null || missing+=("$name"); done
  [ ${#missing[@]} = 0 ] || "$(dirname "$script")/apt.sh" "${missing[@]}" 9>&-
}

write_conf() {
  # Names are relative to the folder: Ceph aborts on some characters that absolute ones may have.
  # No keys between the parts: all of them listen on the loopback only.
  cat >ceph.conf <<END
[global]
fsid = $1
mon_host = [v2:127.0.0.1:$mon_port]
public_addr = 127.0.0.1
cluster_addr = 127.0.0.1
ms_bind_port_min = 42100
ms_bind_port_max = 42199
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
ms_mon_client_mode = crc
# one copy of everything, on the one daemon there is; few placement groups, nobody to tune them
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_num = 4
osd_pool_default_pgp_num = 4
# its own folder for everything; standard error is the log; no admin sockets: their paths may have 107 characters
run_dir = .
crash_dir = .
admin_socket =
log_file =
log_to_stderr = true
debug_default = 0
[mon]
mon_data = mon
mon_cluster_log_file = cluster.log
# the map changes a dozen times while the gateway makes its pools: do not wait a second each time to collect more changes
paxos_propose_interval = 0.02
paxos_min_wait = 0.01
# a developer's disk may be nearly full
mon_data_avail_crit = 1
mon_data_avail_warn = 2
[osd]
osd_data = osd
osd_objectstore = memstore
memstore_device_bytes = 8589934592
[client]
rgw_data = .
rgw_thread_pool_size = 64
END
}

start_cluster() {
  local fsid osd_id
  # The gateway keeps an open file for each connection and many of its own.
  ulimit -Sn 65536 2>/dev/null || ulimit -Sn "$(ulimit -Hn)"

  rm -rf "$cluster"
  mkdir -p "$cluster/mon" "$cluster/osd"
  cd "$cluster"
  fsid=$(cat /proc/sys/kernel/random/uuid)
  osd_id=$(cat /proc/sys/kernel/random/uuid)
  write_conf "$fsid"
  monmaptool --create --fsid "$fsid" --addv a "[v2:127.0.0.1:$mon_port]" monmap >mkfs.log 2>&1
  ceph-mon --conf ceph.conf -i a --mkfs --monmap monmap >>mkfs.log 2>&1
  spawn mon ceph-mon --conf ceph.conf -i a -f
  until_true 20 mon listening "$mon_port"
  timeout 30 ceph --conf ceph.conf --connect-timeout 20 osd new "$osd_id" 0 >>mkfs.log 2>&1
  ceph-osd --conf ceph.conf -i 0 --mkfs --osd-uuid "$osd_id" >>mkfs.log 2>&1
  spawn osd ceph-osd --conf ceph.conf -i 0 -f
  until_true 20 osd osd_is_up # who asks it for something before that is answered five seconds later
  # With the first user come the pools that the gateway needs.
  timeout 60 radosgw-admin --conf ceph.conf -n client.rgw user create --uid=test --display-name=test \
    --access-key="$key" --secret-key="$secret" >>mkfs.log 2>&1
  spawn rgw radosgw --conf ceph.conf -n client.rgw -f --rgw_frontends "beast endpoint=127.0.0.1:$port tcp_nodelay=1"
  until_true 30 rgw listening "$port"
  printf '%s=%s\n' AWS_ENDPOINT_URL "http://127.0.0.1:$port" AWS_ACCESS_KEY_ID "$key" AWS_SECRET_ACCESS_KEY "$secret" \
    AWS_DEFAULT_REGION us-east-1 >"$ready"
}

osd_is_up() { timeout 20 ceph --conf ceph.conf osd stat 2>/dev/null | grep -q '1 up'; }

# What became of a start that failed: the ends of the logs, and nothing left running.
give_up() {
  echo "rgw.sh: could not start" >&2
  for name in mkfs mon osd rgw; do
    [ ! -e "$cluster/$name.log" ] || { echo "--- $name.log" && grep -v '^$' "$cluster/$name.log" | tail -n 8; } >&2
  done
  end_all
  exit 1
}

# setting NAME: as `start` has noted it, never evaluated.
setting() { sed -n "s/^\(export \)\{0,1\}$1=//p" "$ready" | head -n 1; }

endpoint() { setting AWS_ENDPOINT_URL; }

# For `eval`: known names, and values that the shell takes for nothing else.
print_env() {
  for name in AWS_ENDPOINT_URL AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_DEFAULT_REGION; do
    printf 'export %s=%q\n' "$name" "$(setting "$name")"
  done
}

start() {
  lock
  if ! running; then
    install_packages
    end_all # of a start that was cut short, or whose parts died
    for taken in "$port" "$mon_port"; do
      ! listening "$taken" || fail "port $taken is taken; choose others: MC_RGW_PORT=… MC_RGW_MON_PORT=… tests/servers/rgw.sh start"
    done
    trap give_up EXIT
    start_cluster
    trap - EXIT
    [ -z "${MC_RGW_FOR_PID:-}" ] || spawn watch "$script" watch "$MC_RGW_FOR_PID"
  fi
  endpoint
}

stop() {
  [ -d "$cluster" ] || return 0
  lock
  end_all
  rm -rf "$cluster"
}

# Until the process has ended; one that nobody has collected yet shows an empty command line.
watch() {
  while [ -n "$(tr -d '\0' 2>/dev/null <"/proc/$1/cmdline")" ]; do sleep 1; done
  rm -f "$cluster/watch.pid" # or `stop` would end this very process first
  stop
}

case "${1:-}" in
  stop | status | env | watch) [ ! -e "$MC_RGW_DIR" ] || check_own ;; # `start` makes it
esac
case "${1:-}" in
  install) install_packages ;;
  start) start ;;
  stop) stop ;;
  status) if running; then endpoint; else fail "not running"; fi ;;
  env) if running; then print_env; else fail "not running; start it: $0 start"; fi ;;
  watch) watch "$2" ;;
  *) fail "usage: $0 start|stop|status|env|install" 2 ;;
esac
