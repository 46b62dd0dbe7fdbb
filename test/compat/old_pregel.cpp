// SPDX-License-Identifier: BSD-3-Clause
//
// A program in the style of Paracel 0.3: two vertex programs. In one every vertex ends with the greatest id that
// reaches it, in the other with its distance in links from one vertex.
#include <functional>
#include <iostream>
#include <string>

#include <gflags/gflags.h>
#include <mpi.h>

#include "paracel_types.hpp"
#include "pregel.hpp"
#include "ps.hpp"
#include "utils.hpp"

DEFINE_string(server_info, "host1:7777PARACELhost2:8888", "where the servers are");
DEFINE_string(cfg_file, "", "config file");

namespace paracel {
namespace pregel {

class greatest_id : public paracel::pregel::vertex<double, double> {
 public:
  greatest_id(Comm comm, std::string hosts_dct_str, std::string input, std::string output, paracel::parser_type parser,
              std::function<double(const std::string&)> init_func, std::string _update_file)
      : paracel::pregel::vertex<double, double>(comm, hosts_dct_str, input, output, parser, init_func),
        update_file(_update_file) {}

  void compute(const std::string& neighbor, double, const double& val) {
    pt->paracel_bupdate(neighbor, val, update_file, "max_updater");
  }
  double mutable_value(const double& val) { return val; }

 private:
  std::string update_file;
};

class link_distance : public paracel::pregel::vertex<double, double> {
 public:
  link_distance(Comm comm, std::string hosts_dct_str, std::string input, std::string output,
                paracel::parser_type parser, std::function<double(const std::string&)> init_func,
                std::string _update_file)
      : paracel::pregel::vertex<double, double>(comm, hosts_dct_str, input, output, parser, init_func),
        update_file(_update_file) {}

  void compute(const std::string& neighbor, double wgt, const double& val) {
    pt->paracel_bupdate(neighbor, val + wgt, update_file, "min_updater");
  }
  double mutable_value(const double& val) { return val < 1000000. ? val : 1000000.; }

 private:
  std::string update_file;
};

}  // namespace pregel
}  // namespace paracel

int main(int argc, char* argv[]) {
  paracel::main_env comm_main_env(argc, argv);
  paracel::Comm comm(MPI_COMM_WORLD);
  google::SetUsageMessage("[options]\n\t--server_info\n\t--cfg_file\n");
  google::ParseCommandLineFlags(&argc, &argv, true);

  paracel::json_parser jp(FLAGS_cfg_file);
  std::string input = jp.check_parse<std::string>("input");
  std::string output = jp.parse<std::string>("output");
  std::string update_file = jp.check_parse<std::string>("update_file");
  std::string source = jp.parse<std::string>("source");
  auto local_parser = [](const std::string& line) { return paracel::str_split(line, ','); };
  auto input_parser = paracel::gen_parser(local_parser);

  auto own_id = [](const std::string& id) { return std::stod(id); };
  paracel::pregel::greatest_id greatest(comm, FLAGS_server_info, input, output, input_parser, own_id, update_file);
  greatest.run_supersteps();
  greatest.dump_result("max_");

  auto zero_there = [&](const std::string& id) { return id == source ? 0. : 1000000.; };
  paracel::pregel::link_distance distance(comm, FLAGS_server_info, input, output, input_parser, zero_there,
                                          update_file);
  distance.run_supersteps();
  distance.dump_result("distance_");
  return 0;
}
