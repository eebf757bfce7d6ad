#!/bin/sh
# install/installed.sh PREFIX: what `make install` has put there before, in words of ROLE and STORE; nothing, if there is nothing.
set -eu
known=$1/lib/slurm-soda/current/roles
[ ! -f "$known" ] || exec cat "$known"
# Before there was that file, the commands told it.
had() { [ -f "$prefix/bin/$1" ]; }
prefix=$1
! had soda-agent || echo agent
if had sodad; then echo controller; elif had sodactl; then echo login; fi
for driver in "$prefix"/lib/python3*/site-packages/psycopg; do [ ! -d "$driver" ] || echo postgresql; done
