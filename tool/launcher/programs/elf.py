# SPDX-License-Identifier: BSD-3-Clause
"""The libraries that a program is linked with: DT_NEEDED of its dynamic section (System V ABI, chapters 4 and 5)."""
import struct

PT_LOAD, PT_DYNAMIC = 1, 2
DT_NULL, DT_NEEDED, DT_STRTAB = 0, 1, 5
MOST_ENTRIES = 10_000  # of the program header or the dynamic section
LONGEST_NAME = 4096


def needed_libraries(content):
    """Their names. `content`: the bytes of a file (an mmap); empty for anything but an ELF program with a dynamic section."""
    try:
        return list(each_needed(content))
    except (struct.error, IndexError, ValueError):  # cut off or damaged: running it will say so
        return []


def each_needed(content):
    if content[:4] != b"\x7fELF" or content[4] not in (1, 2) or content[5] not in (1, 2):
        return
    order, wide = "<>"[content[5] - 1], content[4] == 2
    table, size, count = (*struct.unpack_from(order + "Q", content, 32), *struct.unpack_from(order + "2H", content, 54)) if wide \
        else (*struct.unpack_from(order + "I", content, 28), *struct.unpack_from(order + "2H", content, 42))
    loaded, dynamic = [], None
    for i in range(min(count, MOST_ENTRIES)):
        at = table + i * size
        if wide:
            kind, _, offset, address, _, length = struct.unpack_from(order + "2I4Q", content, at)
        else:
            kind, offset, address, _, length = struct.unpack_from(order + "5I", content, at)
        if kind == PT_LOAD:
            loaded.append((address, offset, length))
        elif kind == PT_DYNAMIC:
            dynamic = offset, length
    if dynamic is None:
        return
    entry = struct.Struct(order + ("2Q" if wide else "2I"))
    names, strings = [], None
    for i in range(min(dynamic[1] // entry.size, MOST_ENTRIES)):
        tag, value = entry.unpack_from(content, dynamic[0] + i * entry.size)
        if tag == DT_NULL:
            break
        if tag == DT_NEEDED:
            names.append(value)
        elif tag == DT_STRTAB:
            strings = next((value - address + offset for address, offset, length in loaded
                            if address <= value < address + length), None)
    if strings is None:
        return
    for name in names:
        begin = strings + name
        end = content.find(b"\0", begin, begin + LONGEST_NAME)
        if end >= 0:
            yield content[begin:end].decode("utf-8", "replace")
