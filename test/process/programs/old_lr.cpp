// SPDX-License-Identifier: BSD-3-Clause
//
// A logistic regression driver in the style of Paracel 0.3: it reads the config itself, calls the algorithm's functions
// one after the other, and handles a missing file in its own way.
#include <iostream>
#include <stdexcept>
#include <string>

#include "alg/logistic_regression/lr.hpp"
#include "ps.hpp"
#include "utils.hpp"

int main(int argc, char* argv[]) {
  paracel::main_env comm_main_env(argc, argv);
  paracel::Comm comm(MPI_COMM_WORLD);
  std::string cfg_file;
  for (int i = 1; i + 1 < argc; ++i)
    if (std::string(argv[i]) == "--cfg_file") cfg_file = argv[i + 1];

  try {
    paracel::json_parser pt(cfg_file);
    std::string training_input = pt.check_parse<std::string>("training_input");
    std::string test_input = pt.check_parse<std::string>("test_input");
    std::string predict_input = pt.check_parse<std::string>("predict_input");
    std::string output = pt.parse<std::string>("output");
    std::string update_file = pt.check_parse<std::string>("update_file");
    std::string update_func = pt.parse<std::string>("update_func");
    std::string method = pt.parse<std::string>("method");
    int rounds = pt.parse<int>("rounds");
    double alpha = pt.parse<double>("alpha");
    double beta = pt.parse<double>("beta");
    bool debug = pt.parse<bool>("debug");

    paracel::alg::logistic_regression lr_solver(comm, "", training_input, output, update_file, update_func, method,
                                                rounds, alpha, beta, debug);
    lr_solver.solve();
    double loss = lr_solver.calc_loss();
    if (comm.get_rank() == 0) std::cout << "final loss: " << loss << std::endl;
    lr_solver.test(test_input);
    lr_solver.predict(predict_input);
    lr_solver.dump_result();
    if (comm.get_rank() == 0) lr_solver.print({lr_solver.lr_hypothesis(std::vector<double>(11, 0.0))});
  } catch (const std::invalid_argument& e) {
    std::cout << "not started: " << e.what() << std::endl;
    return 1;
  }
  return 0;
}
