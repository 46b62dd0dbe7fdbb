#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# debian_layout.sh STAGED VERSION MAINTAINER: STAGED has a folder for each component, with the installed tree in
# usr/lib/paracel. Puts what others look for elsewhere in its place.
set -euo pipefail
umask 022
staged=$1
version=$2
maintainer=$3
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
tree=usr/lib/paracel
declare -A packages=([programs]=paracel [library]=libparacel [development]=libparacel-dev [python]=python3-paracel
  [documents]=paracel-doc)

# move COMPONENT FROM TO: below usr/lib/paracel, below usr
move() {
  [[ -e $staged/$1/$tree/$2 ]] || return 0
  mkdir -p "$(dirname "$staged/$1/usr/$3")"
  mv "$staged/$1/$tree/$2" "$staged/$1/usr/$3"
}
move programs share/man share/man
move programs share/paracel/schema share/paracel/schema
move programs share/bash-completion share/bash-completion
move programs share/zsh/site-functions share/zsh/vendor-completions
move documents share/doc/paracel share/doc/paracel-doc

# Commands; the programs' names have a prefix, because `wc` is one of coreutils.
mkdir -p "$staged/programs/usr/bin"
cd "$staged/programs/usr/bin"
ln -sf ../lib/paracel/bin/prun.py prun
ln -sf ../lib/paracel/bin/prun.py prun.py
for page in ../share/man/man1/paracel-*.1; do
  name=$(basename "$page" .1)
  ln -sf "../lib/paracel/bin/${name#paracel-}" "$name"
done
ln -sf ../lib/paracel/bin/datagen.py paracel-datagen
ln -sf prun.py ../share/bash-completion/completions/prun
gzip -9n ../share/man/man1/*.1
ln -sf prun.py.1.gz ../share/man/man1/prun.1.gz

# The launcher's modules are compiled again when Debian's default Python is another one.
mkdir -p "$staged/programs/usr/share/python3/runtime.d"
cat >"$staged/programs/usr/share/python3/runtime.d/paracel.rtupdate" <<END
#!/bin/sh
set -e
if [ "\$1" = rtupdate ]; then
  py3clean -p paracel
  py3compile -p paracel /$tree/lib/paracel/launcher
fi
END
chmod 755 "$staged/programs/usr/share/python3/runtime.d/paracel.rtupdate"

# find_package and pkg-config.
mkdir -p "$staged/development/usr/lib/cmake/paracel" "$staged/development/usr/share/pkgconfig"
cd "$staged/development"
echo "include(/$tree/lib/cmake/paracel/paracelConfig.cmake)" >usr/lib/cmake/paracel/paracelConfig.cmake
cp $tree/lib/cmake/paracel/paracelConfigVersion.cmake usr/lib/cmake/paracel/
sed "s|^prefix=.*|prefix=/$tree|" $tree/lib/pkgconfig/paracel.pc >usr/share/pkgconfig/paracel.pc

for component in "${!packages[@]}"; do
  [[ -d $staged/$component ]] || continue
  package=${packages[$component]}
  cd "$staged/$component"
  documents=usr/share/doc/$package
  mkdir -p "$documents" usr/share/lintian/overrides
  rm -f "$documents/LICENSE"
  {
    echo "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/"
    echo "Upstream-Name: paracel"
    echo
    echo "Files: *"
    echo "Copyright: 2026, the authors of this project"
    echo "License: BSD-3-Clause"
    sed -n '/^Redistribution/,$p' "$here/../../LICENSE" | sed 's/^$/./; s/^/ /'
  } >"$documents/copyright"
  {
    echo "paracel ($version) unstable; urgency=medium"
    echo
    echo "  * See the history of the repository."
    echo
    made=${SOURCE_DATE_EPOCH:-$(stat -c %Y "$here/../../CMakeLists.txt")}
    echo " -- $maintainer  $(date -R -u -d "@$made")"
  } | gzip -9n >"$documents/changelog.gz"
  {
    echo "# The tree can be moved: its programs and libraries find each other by where they are."
    echo "$package: custom-library-search-path"
    echo "# Plug-ins that call nothing of the C library."
    echo "$package: library-not-linked-against-libc [usr/lib/paracel/lib/*]"
  } >"usr/share/lintian/overrides/$package"
  find . -depth -type d -empty -delete
  find . -type d -exec chmod 755 {} +
  find . -type f -exec chmod u+rw,go+r,go-w {} +
done
