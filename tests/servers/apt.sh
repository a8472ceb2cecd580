#!/usr/bin/env bash
#
# apt.sh PACKAGE…: installs packages on Debian or Ubuntu, as root, such that none of their services starts.
# Exit codes: 0 they are there, 69 they cannot be installed here; then the last line says why.

set -euo pipefail

unavailable() {
  echo "$1" >&2
  exit 69
}

command -v apt-get >/dev/null || unavailable "missing here, and no apt-get to install it with: $*"
[ "$(id -u)" = 0 ] || unavailable "missing here; as root: apt-get install --no-install-recommends $*"
echo "installing $*" >&2

# apt-get itself waits for another one that installs, but not for another one that updates its lists.
exec 9>/run/manifestcommit-tests-apt.lock
flock 9

# Packages ask this program whether they may start their services. One that is already there has its own opinion, and stays.
# Ours has a line that says so: one that a killed run has left behind would block all services of the machine, and goes first. Nobody
# else has it in use, since we hold the lock.
policy=${MC_POLICY_RC_D:-/usr/sbin/policy-rc.d} # settable for its test
mark='# of manifestcommit: tests/servers/apt.sh'
undo() { ! grep -qsxF "$mark" "$policy" || rm -f "$policy"; }
undo
if [ ! -e "$policy" ]; then
  trap undo EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  trap 'exit 129' HUP
  printf '#!/bin/sh\n%s\nexit 101\n' "$mark" >"$policy.$$"
  chmod +x "$policy.$$"
  mv "$policy.$$" "$policy"
fi

export DEBIAN_FRONTEND=noninteractive
apt() { apt-get -qq -o DPkg::Lock::Timeout=300 "$@" 9>&-; }
if ! said=$(apt update 2>&1 && apt install --no-install-recommends "$@" 2>&1); then
  unavailable "apt-get could not install $*: $(grep '^E:' <<<"$said" | tail -n 2 | tr '\n' ' ')"
fi
