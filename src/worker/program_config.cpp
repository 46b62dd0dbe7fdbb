// SPDX-License-Identifier: BSD-3-Clause
#include "worker/program_config.hpp"

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <variant>
#include <vector>

#include "config/json_document.hpp"
#include "config/launch_facts.hpp"
#include "storage/file_glob.hpp"
#include "worker/results/output_folder.hpp"

namespace paracel {

namespace {

/// The inputs that the config names: files, and folders of models.
std::vector<std::string> inputs_of(const config& settings) {
  std::vector<std::string> paths;
  for (const auto& s : settings.all()) {
    if (s.type != key_type::file && s.type != key_type::files) continue;
    const auto* some = std::get_if<std::vector<std::string>>(&s.value);
    for (const auto& name : some != nullptr ? *some : std::vector<std::string>{std::get<std::string>(s.value)}) {
      const auto files =
          storage::file_exists(name + "/model.json") ? std::vector<std::string>{name} : storage::expand_files(name);
      paths.insert(paths.end(), files.begin(), files.end());
    }
  }
  return paths;
}

/// prun.py has the remarks from --check, and says them once for all workers.
void say_remarks(const std::string& program) {
  if (std::getenv("PARACEL_RENDEZVOUS") != nullptr) return;
  static std::size_t said = 0;  // a process may run one program after the other
  const auto remarks = config_remarks();
  for (; said < remarks.size(); ++said)
    std::fprintf(stderr, "%s: warning: %s\n", program.c_str(), remarks[said].c_str());
}

}  // namespace

config accept_config(const config_schema& schema, const std::string& file, const std::vector<std::string>& overrides) {
  auto settings = schema.check(file, true, overrides);
  say_remarks(schema.program());
  output_folder::keep(inputs_of(settings));
  return settings;
}

std::string check_answer(const config_schema& schema, const std::string& file, bool check_files,
                         const std::vector<std::string>& overrides) {
  auto facts = facts_of(schema.check(file, check_files, overrides), schema);
  facts.remarks = config_remarks();
  return facts_json(facts, &schema);
}

}  // namespace paracel
