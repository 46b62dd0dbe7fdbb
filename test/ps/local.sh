#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Starts a program in all roles as ps-lite's own script does: local.sh SERVERS WORKERS PROGRAM [ARGUMENTS]
# The exit status is 0 if that of every process is.
export DMLC_NUM_SERVER="$1" DMLC_NUM_WORKER="$2" DMLC_PS_ROOT_URI=127.0.0.1
export DMLC_PS_ROOT_PORT="${DMLC_PS_ROOT_PORT:-8000}"
shift 2
processes=""
DMLC_ROLE=scheduler "$@" & processes="$processes $!"
i=0; while [ $i -lt "$DMLC_NUM_SERVER" ]; do DMLC_ROLE=server "$@" & processes="$processes $!"; i=$((i + 1)); done
i=0; while [ $i -lt "${PROCESSES:-$DMLC_NUM_WORKER}" ]; do DMLC_ROLE=worker "$@" & processes="$processes $!"; i=$((i + 1)); done
status=0
for p in $processes; do wait "$p" || status=$?; done
exit $status
