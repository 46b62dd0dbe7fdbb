#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The compiler through ccache, which has files that include precompiled headers in its cache only if told to. The headers
# themselves are not cached: GCC keeps with them when each file was changed, and takes a file of another time (a commit that was
# checked out again) for another file, which it includes twice.
case " $* " in
  *" c++-header "*) exec "$@" ;;
esac
CCACHE_SLOPPINESS=pch_defines,time_macros exec ccache "$@"
