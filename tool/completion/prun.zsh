#compdef prun.py prun
# SPDX-License-Identifier: BSD-3-Clause
# Completion of prun.py in zsh: options, programs, keys of --set.
local -a found
local launcher=${(Q)words[1]}
found=("${(@f)$($launcher __complete $((CURRENT - 1)) "${(@Q)words}" 2>/dev/null)}")
local status_=1
compadd -Q -S '' -- ${(M)found:#*=} && status_=0
compadd -Q -- ${${found:#*=}:#__files__} && status_=0
if (( ${found[(Ie)__files__]} )); then
  [[ $PREFIX == *=* ]] && compset -P 1 '*='
  _files && status_=0
fi
return status_
