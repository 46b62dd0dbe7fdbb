// SPDX-License-Identifier: BSD-3-Clause
#include "config/json_document.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <system_error>

#include "core/number_parsing.hpp"
#include "paracel/error.hpp"

namespace paracel {

namespace {

std::string place(const std::string& file, std::string_view text, std::size_t offset) {
  offset = std::min(offset, text.size());
  const auto before = text.substr(0, offset);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const auto newline = before.rfind('\n');
  const auto column = offset - (newline == std::string_view::npos ? 0 : newline + 1) + 1;
  return file + ":" + std::to_string(line) + ":" + std::to_string(column);
}

/// Tells the parser's callbacks how far it has read: every copy of the iterator shares the same position.
class counting_iterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  counting_iterator(const char* at, const char* first, std::size_t* read) : at_(at), first_(first), read_(read) {}
  reference operator*() const { return *at_; }
  counting_iterator& operator++() {
    ++at_;
    *read_ = static_cast<std::size_t>(at_ - first_);
    return *this;
  }
  counting_iterator operator++(int) {
    auto old = *this;
    ++*this;
    return old;
  }
  bool operator==(const counting_iterator& other) const { return at_ == other.at_; }
  bool operator!=(const counting_iterator& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  const char* first_;
  std::size_t* read_;
};

class tree_builder {
 public:
  using number_integer_t = nlohmann::json::number_integer_t;
  using number_unsigned_t = nlohmann::json::number_unsigned_t;
  using number_float_t = nlohmann::json::number_float_t;
  using string_t = nlohmann::json::string_t;
  using binary_t = nlohmann::json::binary_t;

  tree_builder(const std::string& file, std::string_view text, const std::size_t& read)
      : file_(file), text_(text), read_(read) {}

  config_node take() { return std::move(root_); }

  bool null() {
    put({});
    return true;
  }
  bool boolean(bool v) {
    config_node n;
    n.type = config_node::kind::boolean;
    n.boolean = v;
    put(std::move(n));
    return true;
  }
  bool number_integer(number_integer_t v) { return integer(static_cast<double>(v), std::to_string(v)); }
  bool number_unsigned(number_unsigned_t v) { return integer(static_cast<double>(v), std::to_string(v)); }
  bool number_float(number_float_t v, const string_t& written) {
    config_node n;
    n.type = config_node::kind::number;
    n.number = v;
    n.text = written;
    put(std::move(n));
    return true;
  }
  bool string(string_t& v) {
    config_node n;
    n.type = config_node::kind::string;
    n.text = std::move(v);
    put(std::move(n));
    return true;
  }
  bool binary(binary_t&) { return false; }  // only binary formats have it
  bool start_object(std::size_t) { return open(config_node::kind::object); }
  bool end_object() { return close(); }
  bool start_array(std::size_t) { return open(config_node::kind::list); }
  bool end_array() { return close(); }
  bool key(string_t& name) {
    // The parser has just read the closing quote; the opening one is the nearest quote before it that is preceded by an
    // even number of backslashes.
    std::size_t at = read_ - 1;
    while (at > 0) {
      --at;
      if (text_[at] != '"') continue;
      std::size_t slashes = 0;
      while (slashes < at && text_[at - 1 - slashes] == '\\') ++slashes;
      if (slashes % 2 == 0) break;
    }
    while (counted_ < at) {
      if (text_[counted_++] == '\n') {
        ++line_;
        line_begin_ = counted_;
      }
    }
    config_member m;
    m.name = std::move(name);
    m.line = line_;
    m.column = at - line_begin_ + 1;
    m.origin = file_;
    stack_.back()->members.push_back(std::move(m));
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& problem) {
    // Its text repeats the position before ": "; ours replaces it.
    std::string what = problem.what();
    const auto column = what.find(", column ");
    const auto colon = column == std::string::npos ? std::string::npos : what.find(": ", column);
    if (colon != std::string::npos) {
      what = what.substr(colon + 2);
    } else if (const auto bracket = what.find("] "); bracket != std::string::npos) {
      what = what.substr(bracket + 2);
    }
    std::replace(what.begin(), what.end(), '\n', ' ');
    throw config_error(place(file_, text_, position == 0 ? 0 : position - 1) + ": not JSON: " + what);
  }

 private:
  bool integer(double v, std::string written) {
    config_node n;
    n.type = config_node::kind::integer;
    n.number = v;
    n.text = std::move(written);
    put(std::move(n));
    return true;
  }
  config_node* put(config_node n) {
    if (stack_.empty()) {
      root_ = std::move(n);
      return &root_;
    }
    config_node& parent = *stack_.back();
    if (parent.type == config_node::kind::list) {
      parent.items.push_back(std::move(n));
      return &parent.items.back();
    }
    parent.members.back().value = std::move(n);
    return &parent.members.back().value;
  }
  bool open(config_node::kind kind) {
    if (stack_.size() == config_depth_limit) {
      throw config_error(place(file_, text_, read_ - 1) + ": nested deeper than " + std::to_string(config_depth_limit) +
                         " levels");
    }
    config_node n;
    n.type = kind;
    // The pointer stays valid: a parent's vector does not grow while a child is open.
    stack_.push_back(put(std::move(n)));
    return true;
  }
  bool close() {
    stack_.pop_back();
    return true;
  }

  const std::string& file_;
  std::string_view text_;
  const std::size_t& read_;
  config_node root_;
  std::vector<config_node*> stack_;
  std::size_t counted_ = 0;
  std::size_t line_ = 1;
  std::size_t line_begin_ = 0;
};

/// Texts of the whole process, the newest first; each is kept once. Nodes are never removed.
class text_list {
 public:
  void add(const std::string& text) {
    const auto* newest = newest_.load(std::memory_order_acquire);
    for (const auto* n = newest; n != nullptr; n = n->next)
      if (n->text == text) return;
    auto* fresh = new node{text, newest};
    while (!newest_.compare_exchange_weak(fresh->next, fresh, std::memory_order_acq_rel)) {
    }
  }
  /// The oldest first.
  [[nodiscard]] std::vector<std::string> all() const {
    std::vector<std::string> texts;
    for (const auto* n = newest_.load(std::memory_order_acquire); n != nullptr; n = n->next) texts.push_back(n->text);
    std::ranges::reverse(texts);
    return texts;
  }

 private:
  struct node {
    std::string text;
    const node* next = nullptr;
  };
  std::atomic<const node*> newest_{nullptr};
};

text_list folders_read;  // of configs: their reader knows nothing of servers
text_list remarks;

}  // namespace

const config_node* config_node::find(std::string_view name) const noexcept {
  const auto at = std::find_if(members.rbegin(), members.rend(), [&](const auto& m) { return m.name == name; });
  return at == members.rend() ? nullptr : &at->value;
}

std::string config_node::described() const {
  switch (type) {
    case kind::null:
      return "null";
    case kind::boolean:
      return boolean ? "true" : "false";
    case kind::integer:
    case kind::number:
      return "number " + text;
    case kind::string:
      return "string " + quote_for_error(text);
    case kind::list:
      return "a list";
    case kind::object:
      return "an object";
  }
  return "nothing";
}

std::optional<std::int64_t> config_node::as_integer() const {
  std::int64_t whole = 0;
  if (type == kind::integer || type == kind::string) {
    if (read_whole_integer(text, whole)) return whole;
    if (type == kind::integer) return std::nullopt;  // beyond 64 bits
  }
  const auto n = as_number();
  // 2^53: up to it every integer is exactly a double.
  if (!n || std::abs(*n) > 9007199254740992.0 || *n != std::floor(*n)) return std::nullopt;
  return static_cast<std::int64_t>(*n);
}

std::optional<double> config_node::as_number() const {
  if (type == kind::integer || type == kind::number) return number;
  double v = 0;
  if (type == kind::string && read_whole_number(text, v)) return v;
  return std::nullopt;
}

std::optional<bool> config_node::as_boolean() const {
  if (type == kind::boolean) return boolean;
  if (type == kind::integer || type == kind::string) {
    if (text == "1" || (type == kind::string && text == "true")) return true;
    if (text == "0" || (type == kind::string && text == "false")) return false;
  }
  return std::nullopt;
}

std::optional<std::string> config_node::as_string() const {
  switch (type) {
    case kind::string:
    case kind::integer:
    case kind::number:
      return text;
    case kind::boolean:
      return boolean ? "true" : "false";
    default:
      return std::nullopt;
  }
}

std::string nearest_name(std::string_view name, const std::vector<std::string>& names) {
  // Optimal string alignment distance: insert, delete, replace, swap of neighbours.
  const auto distance = [](std::string_view a, std::string_view b) {
    std::vector<std::size_t> before(b.size() + 1);
    std::vector<std::size_t> last(b.size() + 1);
    std::vector<std::size_t> now(b.size() + 1);
    for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
    for (std::size_t i = 1; i <= a.size(); ++i) {
      now[0] = i;
      for (std::size_t j = 1; j <= b.size(); ++j) {
        now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
        const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
        if (swapped) now[j] = std::min(now[j], before[j - 2] + 1);
      }
      before.swap(last);
      last.swap(now);
    }
    return last[b.size()];
  };
  constexpr std::size_t longest = 64;  // the table is quadratic, and no key is longer
  std::string best;
  if (name.size() > longest) return best;
  std::size_t best_distance = std::clamp<std::size_t>(name.size() / 3, 1, 3) + 1;
  for (const auto& candidate : names) {
    if (candidate.size() > longest) continue;
    const auto d = distance(name, candidate);
    if (d < best_distance) {
      best_distance = d;
      best = candidate;
    }
  }
  return best;
}

config_node parse_config(const std::string& file, std::string_view text) {
  std::size_t read = 0;
  tree_builder builder(file, text, read);
  const char* first = text.data();
  const char* last = first + text.size();
  nlohmann::json::sax_parse(counting_iterator(first, first, &read), counting_iterator(last, first, &read), &builder);
  return builder.take();
}

std::vector<std::string> config_folders() { return folders_read.all(); }

void note_config_folder(const std::string& file) {
  std::error_code failed;
  const auto folder = std::filesystem::absolute(file, failed).parent_path().string();
  if (!failed) folders_read.add(folder);
}

void add_config_remark(const std::string& text) { remarks.add(text); }
std::vector<std::string> config_remarks() { return remarks.all(); }

}  // namespace paracel
