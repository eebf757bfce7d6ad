#!/bin/sh
# install/limits_left.sh [DIRECTORY]: prints what a killed soda-agent has left limited on this node, by what it has recorded; status 1
# where that is nothing. An agent that ends gives everything back; one that is started gives back what another has left.
set -u
state=${1:-/var/lib/slurm-soda-agent} left=
add() { left=${left:+$left, }$1; }
! grep -qs '"jobs":\[{' "$state/cores.json" || add "cores of jobs"
! grep -qsE '"(groups|cores)":\[[^]]' "$state/memory.json" || add "memory bandwidth of jobs"
[ ! -e "$state/network.json" ] || add "the network of jobs"
[ -n "$left" ] || exit 1
echo "$left"
