// SPDX-License-Identifier: BSD-3-Clause
#include "value.hpp"

#include <limits>
#include <utility>

namespace paracel::py {

namespace {

[[noreturn]] void refuse(const std::string& what) { throw nb::type_error(what.c_str()); }

std::string type_of(nb::handle h) { return nb::cast<std::string>(nb::str(h.type().attr("__name__"))); }

const nb::object& numpy() {
  static auto* it = new nb::object(nb::module_::import_("numpy"));
  return *it;
}

value_tag tag_of_dtype(const nb::dlpack::dtype& d) {
  if (d.lanes != 1) return value_tag::none;
  if (d == nb::dtype<double>()) return value_tag::f64;
  if (d == nb::dtype<float>()) return value_tag::f32;
  if (d == nb::dtype<std::int64_t>()) return value_tag::i64;
  if (d == nb::dtype<std::int32_t>()) return value_tag::i32;
  return value_tag::none;
}

using any_array = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;

any_value own(value_tag tag, const void* p, std::size_t size) {
  return any_value(value_view{tag, {static_cast<const std::byte*>(p), size}});
}

// ---- packed

using packer = msgpack::packer<codec_detail::byte_writer>;
constexpr int deepest = 100;  // of containers in containers

void pack(packer& to, nb::handle h, int depth);

std::size_t length_of(nb::handle h) { return static_cast<std::size_t>(nb::len(h)); }

void pack_number(packer& to, nb::handle h) {
  int overflow = 0;
  const long long n = PyLong_AsLongLongAndOverflow(h.ptr(), &overflow);
  if (overflow == 0) {
    to.pack(static_cast<std::int64_t>(n));
    return;
  }
  const unsigned long long u = overflow > 0 ? PyLong_AsUnsignedLongLong(h.ptr()) : 0;
  if (overflow < 0 || PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    refuse("an int of more than 64 bits cannot be a value");
  }
  to.pack(static_cast<std::uint64_t>(u));
}

void pack_array(packer& to, nb::handle h) {
  const auto v = value_of(h);
  with_type(element_of(v.tag), [&](auto zero) {
    using number = decltype(zero);
    const std::span<const number> all(reinterpret_cast<const number*>(v.bytes.get()), v.size / sizeof(number));
    if (is_array(v.tag)) to.pack_array(static_cast<std::uint32_t>(all.size()));
    for (const auto x : all) to.pack(x);
  });
}

void pack(packer& to, nb::handle h, int depth) {
  if (depth > deepest) refuse("a value of more than " + std::to_string(deepest) + " levels of lists");
  if (h.is_none()) to.pack_nil();
  else if (PyBool_Check(h.ptr())) h.is(nb::handle(Py_True)) ? to.pack_true() : to.pack_false();
  else if (PyLong_Check(h.ptr())) pack_number(to, h);
  else if (PyFloat_Check(h.ptr())) to.pack(PyFloat_AsDouble(h.ptr()));
  else if (PyUnicode_Check(h.ptr())) to.pack(nb::cast<std::string>(nb::borrow(h)));
  else if (PyBytes_Check(h.ptr())) {
    const nb::bytes b = nb::borrow<nb::bytes>(h);
    to.pack_bin(static_cast<std::uint32_t>(b.size()));
    to.pack_bin_body(static_cast<const char*>(b.data()), static_cast<std::uint32_t>(b.size()));
  } else if (PyDict_Check(h.ptr())) {
    to.pack_map(static_cast<std::uint32_t>(length_of(h)));
    for (const auto item : nb::borrow<nb::dict>(h)) {
      pack(to, item.first, depth + 1);
      pack(to, item.second, depth + 1);
    }
  } else if (PyList_Check(h.ptr()) || PyTuple_Check(h.ptr())) {
    to.pack_array(static_cast<std::uint32_t>(length_of(h)));
    for (const auto item : h) pack(to, item, depth + 1);
  } else if (nb::ndarray_check(h)) pack_array(to, h);
  else refuse("a " + type_of(h) + " cannot be a value: want numbers, arrays, str, bytes, lists, tuples or dicts");
}

any_value packed(nb::handle h) {
  std::vector<std::byte> bytes;
  codec_detail::byte_writer writer{bytes};
  packer to(writer);
  pack(to, h, 0);
  return own(value_tag::packed, bytes.data(), bytes.size());
}

nb::object unpacked(const msgpack::object& o) {
  switch (o.type) {
    case msgpack::type::NIL:
      return nb::none();
    case msgpack::type::BOOLEAN:
      return nb::cast(o.via.boolean);
    case msgpack::type::POSITIVE_INTEGER:
      return nb::cast(o.via.u64);
    case msgpack::type::NEGATIVE_INTEGER:
      return nb::cast(o.via.i64);
    case msgpack::type::FLOAT32:
    case msgpack::type::FLOAT64:
      return nb::cast(o.via.f64);
    case msgpack::type::STR: {
      auto* text = PyUnicode_DecodeUTF8(o.via.str.ptr, o.via.str.size, "surrogateescape");
      if (text == nullptr) throw nb::python_error();
      return nb::steal(text);
    }
    case msgpack::type::BIN:
      return nb::bytes(o.via.bin.ptr, o.via.bin.size);
    case msgpack::type::ARRAY: {
      nb::list all;
      for (std::uint32_t i = 0; i < o.via.array.size; ++i) all.append(unpacked(o.via.array.ptr[i]));
      return all;
    }
    case msgpack::type::MAP: {
      nb::dict all;
      for (std::uint32_t i = 0; i < o.via.map.size; ++i) {
        auto key = unpacked(o.via.map.ptr[i].key);
        if (nb::isinstance<nb::list>(key)) key = nb::tuple(key);
        all[key] = unpacked(o.via.map.ptr[i].val);
      }
      return all;
    }
    case msgpack::type::EXT:
      break;
  }
  throw type_error("value is a packed extension, which Python cannot read");
}

nb::object unpacked(const value_view& v) {
  codec_detail::check_packed(v.bytes);
  msgpack::zone zone;
  std::size_t offset = 0;
  try {
    return unpacked(msgpack::unpack(zone, reinterpret_cast<const char*>(v.bytes.data()), v.bytes.size(), offset,
                                    [](msgpack::type::object_type, std::size_t, void*) { return true; }));
  } catch (const msgpack::unpack_error& e) {
    throw protocol_error(std::string("packed value: ") + e.what());
  }
}

// ---- lists

/// none: not a list of numbers.
value_tag element_of_list(nb::handle list) {
  bool all_integers = true;
  for (const auto item : list) {
    if (PyBool_Check(item.ptr())) return value_tag::none;
    if (PyFloat_Check(item.ptr())) all_integers = false;
    else if (!PyLong_Check(item.ptr())) return value_tag::none;
  }
  return all_integers && length_of(list) != 0 ? value_tag::i64 : value_tag::f64;
}

any_value list_of_numbers(nb::handle list, value_tag element) {
  any_value v;
  v.tag = static_cast<value_tag>(static_cast<unsigned>(element) | 0x10U);
  v.size = length_of(list) * sizeof(double);
  v.bytes = new_bytes(v.size);
  auto* to = v.bytes.get();
  for (const auto item : list) {
    if (element == value_tag::i64) {
      const auto n = static_cast<std::int64_t>(PyLong_AsLongLong(item.ptr()));
      to = store_fields(to, n);
    } else {
      const double x = PyFloat_AsDouble(item.ptr());
      to = store_fields(to, x);
    }
    if (PyErr_Occurred() != nullptr) throw nb::python_error();
  }
  return v;
}

}  // namespace

const char* dtype_name(value_tag element) {
  switch (element_of(element)) {
    case value_tag::f64:
      return "float64";
    case value_tag::f32:
      return "float32";
    case value_tag::i64:
      return "int64";
    default:
      return "int32";
  }
}

value_tag element_named(nb::handle dtype) {
  const auto name = nb::cast<std::string>(nb::str(numpy().attr("dtype")(dtype).attr("name")));
  for (const auto tag : {value_tag::f64, value_tag::f32, value_tag::i64, value_tag::i32})
    if (name == dtype_name(tag)) return tag;
  refuse("dtype " + name + " cannot be stored: want float64, float32, int64 or int32");
}

any_value value_of(nb::handle from) {
  if (PyFloat_CheckExact(from.ptr())) {
    const double x = PyFloat_AsDouble(from.ptr());
    return own(value_tag::f64, &x, sizeof x);
  }
  if (PyLong_Check(from.ptr()) && !PyBool_Check(from.ptr())) {
    int overflow = 0;
    const auto n = static_cast<std::int64_t>(PyLong_AsLongLongAndOverflow(from.ptr(), &overflow));
    if (overflow == 0) return own(value_tag::i64, &n, sizeof n);
  } else if (PyList_Check(from.ptr())) {
    const auto element = element_of_list(from);
    if (element != value_tag::none) return list_of_numbers(from, element);
  } else if (!PyBytes_Check(from.ptr()) && !PyUnicode_Check(from.ptr()) && nb::ndarray_check(from)) {
    auto all = numbers_of(from, "a value");
    any_value v;
    v.tag = all.shape.empty() ? all.element : static_cast<value_tag>(static_cast<unsigned>(all.element) | 0x10U);
    v.size = all.bytes.size();
    v.bytes = {std::move(all.keeps), all.bytes.data()};
    return v;
  }
  return packed(from);
}

nb::object with_numpys_type(nb::object array, const char* name) { return array.attr("view")(numpy().attr(name)); }

nb::object array_of(value_tag element, const shared_bytes& bytes, std::span<const std::size_t> shape) {
  auto* kept = new shared_bytes(bytes);
  const nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<shared_bytes*>(p); });
  return with_type(element_of(element), [&](auto zero) {
    using number = decltype(zero);
    auto array = nb::cast(
        nb::ndarray<nb::numpy, number>(reinterpret_cast<number*>(bytes.get()), shape.size(), shape.data(), owner));
    if constexpr (sizeof(number) == sizeof(std::int64_t) && std::is_integral_v<number>)
      return with_numpys_type(std::move(array), "int64");
    return array;
  });
}

nb::object to_python(const any_value& v) {
  if (v.tag == value_tag::none) return nb::none();
  if (v.tag == value_tag::packed) return unpacked(v.view());
  const std::size_t count = v.size / element_bytes(v.tag);
  if (is_array(v.tag)) return array_of(v.tag, v.bytes, std::span(&count, 1));
  return with_type(v.tag, [&](auto number) {
    std::memcpy(&number, v.bytes.get(), sizeof number);
    return nb::cast(number);
  });
}

number_view numbers_of(nb::handle from, const char* what, value_tag element) {
  nb::object keeps = nb::borrow(from);
  if (PyList_Check(from.ptr()) || PyTuple_Check(from.ptr()) || PyFloat_CheckExact(from.ptr()) ||
      PyLong_CheckExact(from.ptr()))
    keeps = numpy().attr("asarray")(from);
  any_array a;
  bool right = nb::ndarray_check(keeps) && nb::try_cast(keeps, a);
  if (right && element != value_tag::none && tag_of_dtype(a.dtype()) != element) {
    keeps = numpy().attr("asarray")(keeps).attr("astype")(dtype_name(element), nb::arg("casting") = "same_kind");
    right = nb::try_cast(keeps, a);
  }
  if (!right || tag_of_dtype(a.dtype()) == value_tag::none) {
    std::string found = type_of(from);
    if (nb::hasattr(keeps, "dtype")) {
      const nb::object dtype = keeps.attr("dtype");
      found += " of " + nb::cast<std::string>(nb::str(nb::handle(dtype)));
    }
    refuse(std::string(what) + " is a " + found + ": want numbers of float64, float32, int64 or int32");
  }
  number_view v;
  v.element = tag_of_dtype(a.dtype());
  v.bytes = {static_cast<std::byte*>(const_cast<void*>(static_cast<const void*>(a.data()))), a.nbytes()};
  for (std::size_t i = 0; i < a.ndim(); ++i) v.shape.push_back(a.shape(i));
  v.keeps = std::make_shared<any_array>(std::move(a));
  return v;
}

number_view writable_numbers_of(nb::handle from, const char* what) {
  nb::ndarray<nb::c_contig, nb::device::cpu> a;
  if (!nb::ndarray_check(from) || !nb::try_cast(nb::borrow(from), a, false) ||
      tag_of_dtype(a.dtype()) == value_tag::none)
    refuse(std::string(what) + " must be a writable, contiguous array of float64, float32, int64 or int32");
  number_view v;
  v.element = tag_of_dtype(a.dtype());
  v.bytes = {static_cast<std::byte*>(a.data()), a.nbytes()};
  for (std::size_t i = 0; i < a.ndim(); ++i) v.shape.push_back(a.shape(i));
  v.keeps = std::make_shared<decltype(a)>(std::move(a));
  return v;
}

std::vector<std::uint64_t> indices_of(nb::handle from, const char* what) {
  auto array = numpy().attr("asarray")(from);
  if (nb::len(array.attr("reshape")(-1)) == 0) return {};
  const auto kind = nb::cast<std::string>(nb::str(array.attr("dtype").attr("kind")));
  if (kind != "i" && kind != "u") refuse(std::string(what) + ": want integers");
  if (kind == "i" && PyObject_IsTrue(array.attr("min")().attr("__lt__")(0).ptr()) == 1)
    throw nb::value_error((std::string(what) + ": want integers of 0 or more").c_str());
  array = numpy().attr("ascontiguousarray")(array, "uint64").attr("reshape")(-1);
  const auto a = nb::cast<nb::ndarray<const std::uint64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>>(array);
  return {a.data(), a.data() + a.size()};
}

}  // namespace paracel::py
