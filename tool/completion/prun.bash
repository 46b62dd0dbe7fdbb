# SPDX-License-Identifier: BSD-3-Clause
# Completion of prun.py, and of programs installed as paracel-NAME, in bash: options, programs, keys of --set.
_paracel_prun() {
  local launcher word found=() current=${COMP_WORDS[COMP_CWORD]} words=() at=0 i
  # bash divides KEY=VALUE at the =.
  for ((i = 0; i < ${#COMP_WORDS[@]}; ++i)); do
    word=${COMP_WORDS[i]}
    if ((i > 1)) && [[ $word == = || ${COMP_WORDS[i - 1]} == = ]]; then words[${#words[@]}-1]+=$word; else words+=("$word"); fi
    ((i == COMP_CWORD)) && at=$((${#words[@]} - 1))
  done
  launcher=${words[0]}
  case ${launcher##*/} in prun*) ;; *) launcher=prun.py ;; esac
  mapfile -t found < <("$launcher" __complete "$at" "${words[@]}" 2>/dev/null)
  COMPREPLY=()
  for word in "${found[@]}"; do
    if [[ $word == __files__ ]]; then
      [[ $current == = ]] && current=
      mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- "$current")
      compopt -o filenames
    else
      [[ ${words[at]} == *=* ]] && word=${word#*=}
      COMPREPLY+=("$word")
    fi
  done
  [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace
  return 0
}
complete -F _paracel_prun prun.py prun
