# SPDX-License-Identifier: BSD-3-Clause
"""A trace as JSON for Chrome's viewer, and as the protobuf messages of Perfetto's. Both open in ui.perfetto.dev, which reads the
file in the browser; the second is smaller, and read faster."""
import json

# Numbers of fields in Perfetto's trace_packet.proto, track_event.proto, track_descriptor.proto and debug_annotation.proto.
PACKET = 1
TIMESTAMP, SEQUENCE_ID, TRACK_EVENT, TRACK_DESCRIPTOR, SEQUENCE_FLAGS = 8, 10, 11, 60, 13
EVENT_ANNOTATION, EVENT_TYPE, EVENT_TRACK, EVENT_CATEGORY, EVENT_NAME, EVENT_FLOW = 4, 9, 11, 22, 23, 47
BEGIN, END = 1, 2
UUID, NAME, PROCESS, PARENT = 1, 2, 3, 5
PROCESS_PID, PROCESS_NAME = 1, 6
ANNOTATION_UINT, ANNOTATION_STRING, ANNOTATION_NAME = 3, 6, 10
INCREMENTAL_STATE_CLEARED = 1


def sides(track):
    """(is the beginning, Span) of the spans of a track, in order of time; at the same time as they nest."""
    open_ = []
    for span in track.spans:
        while open_ and open_[-1].end <= span.begin:
            yield False, open_.pop()
        open_.append(span)
        yield True, span
    while open_:
        yield False, open_.pop()


def chrome(trace):
    """Yields the text. Times are in us; a process has the number of its place, as ids of several hosts may be equal."""
    first = True
    yield '{"displayTimeUnit":"ns","traceEvents":[\n'
    for event in chrome_events(trace):
        yield ("" if first else ",\n") + json.dumps(event, separators=(",", ":"))
        first = False
    yield "\n]," + json.dumps({"metadata": {"notes": trace.notes, "dropped": trace.dropped}})[1:] + "\n"


def chrome_events(trace):
    thread = 0
    for pid, process in enumerate(trace.processes, 1):
        yield {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": process.name()}}
        yield {"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": pid}}
        for track in process.tracks:
            thread += 1
            at = {"pid": pid, "tid": thread}
            yield {"ph": "M", "name": "thread_name", **at, "args": {"name": track.name}}
            yield {"ph": "M", "name": "thread_sort_index", **at, "args": {"sort_index": thread}}
            for begins, span in sides(track):
                ts = (span.begin if begins else span.end) / 1000
                if not begins:
                    yield {"ph": "E", **at, "ts": ts}
                    continue
                yield {"ph": "B", **at, "ts": ts, "name": span.name, "cat": span.category, "args": span.args}
                for flow in span.into:
                    yield {"ph": "f", "bp": "e", **at, "ts": ts, "id": flow, "name": "request", "cat": "flow"}
                for flow in span.out:
                    yield {"ph": "s", **at, "ts": ts, "id": flow, "name": "request", "cat": "flow"}


def varint(n):
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


def number(field, value):
    return varint(field << 3) + varint(value)


def fixed(field, value):
    return varint(field << 3 | 1) + value.to_bytes(8, "little")


def text(field, value):
    """A string, or a message that is encoded already."""
    data = value if isinstance(value, bytes) else value.encode("utf-8", "replace")
    return varint(field << 3 | 2) + varint(len(data)) + data


def annotation(name, value):
    value = number(ANNOTATION_UINT, value) if isinstance(value, int) else text(ANNOTATION_STRING, value)
    return text(EVENT_ANNOTATION, text(ANNOTATION_NAME, name) + value)


def perfetto(trace):
    """Yields the bytes, in pieces."""
    sequence = number(SEQUENCE_ID, 1)
    yield text(PACKET, sequence + number(SEQUENCE_FLAGS, INCREMENTAL_STATE_CLEARED))
    uuid = 0
    for pid, process in enumerate(trace.processes, 1):
        uuid += 1
        parent = uuid
        about = text(PROCESS, number(PROCESS_PID, pid) + text(PROCESS_NAME, process.name()))
        yield text(PACKET, sequence + text(TRACK_DESCRIPTOR, number(UUID, uuid) + about))
        for track in process.tracks:
            uuid += 1
            about = number(UUID, uuid) + number(PARENT, parent) + text(NAME, track.name)
            yield text(PACKET, sequence + text(TRACK_DESCRIPTOR, about))
            on = number(EVENT_TRACK, uuid)
            for begins, span in sides(track):
                event = on + number(EVENT_TYPE, BEGIN if begins else END)
                if begins:
                    event += text(EVENT_NAME, span.name) + text(EVENT_CATEGORY, span.category)
                    event += b"".join(annotation(k, v) for k, v in span.args.items())
                    event += b"".join(fixed(EVENT_FLOW, flow) for flow in span.into + span.out)
                yield text(PACKET, number(TIMESTAMP, span.begin if begins else span.end) + sequence + text(TRACK_EVENT, event))
