// The program `sluice`.

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <ios>
#include <memory>
#include <new>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

#include "base/illegal_instruction.h"
#include "cli/commands.h"
#include "cli/help.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/ranks.h"
#include "cli/usage.h"
#include "compute/kernels/kernels.h"
#include "model/mapped_ranges.h"

namespace sluice {

namespace {

int finish(const Status& status) { return status ? 0 : report(status.error()); }

// The environment variable SLUICE_ISA names the instruction set to compute with; without it the best one is taken.
Status choose_instruction_set() {
  if (kernels::use_kernels_of_environment()) return {};
  std::string names;
  for (const kernels::Kernels* kernels : kernels::runnable_kernels())
    names += (names.empty() ? "" : ", ") + std::string(kernels->name);
  return input_error("SLUICE_ISA=" + std::string(std::getenv("SLUICE_ISA")) + ": this processor runs " + names +
                     "; without SLUICE_ISA the best of them is taken");
}

// In the order in which CLI11 takes them, the last one first. llama.cpp's -hf REPO means -m hf:REPO, and help COMMAND
// its --help.
std::vector<std::string> arguments_of(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  for (size_t i = 0; i + 1 < arguments.size() && arguments[i] != "--"; ++i)
    if (arguments[i] == "-hf" || arguments[i] == "--hf-repo") {
      arguments[i] = "--model";
      arguments[i + 1].insert(0, "hf:");
    }
  if (!arguments.empty() && arguments.front() == "help") {
    arguments.erase(arguments.begin());
    arguments.emplace_back("--help");
  }
  std::reverse(arguments.begin(), arguments.end());
  return arguments;
}

int run_program(int argc, char** argv) {
  CLI::App app(
      "Sluice makes a language model that is split over devices fast for one user, to the bit.\n"
      "Start with: sluice run \"Why is the sky blue?\"",
      "sluice");
  app.require_subcommand(1);
  app.footer(
      "Examples:\n"
      "  sluice run \"Why is the sky blue?\"\n"
      "  sluice chat\n"
      "  sluice demo\n"
      "  sluice run --help\n"
      "Environment: SLUICE_ISA=scalar, avx2, avxvnni, avx512, avx512bf16, amx or neon computes with another\n"
      "instruction set, to the same bits.");
  app.set_version_flag("--version", "sluice " SLUICE_VERSION);
  app.set_help_all_flag("--help-all", "All options, by group");
  app.formatter(std::make_shared<HelpFormatter>());
  Action action;
  add_run(app, action);
  add_chat(app, action);
  add_serve(app, action);
  add_demo(app, action);
  add_bench(app, action);
  add_plan(app, action);
  add_train(app, action);
  add_inspect(app, action);
  add_stage(app, action);
  add_up(app, action);
  add_secret(app, action);
  if (argc <= 1) return is_follower() ? 0 : finish(print(app.help()));
  if (const Status status = choose_instruction_set(); !status) return finish(status);
  if (const Status status = refuse_foreign(app, {argv + 1, argv + argc}); !status)
    return is_follower() ? 0 : finish(status);
  try {
    app.parse(arguments_of(argc, argv));
  } catch (const CLI::ParseError& error) {
    if (is_follower()) return 0;  // rank 0 says it, of the same command line
    const bool no_command = app.get_subcommands().empty() && !app.remaining().empty();  // also where help was asked for
    if (error.get_exit_code() != 0 || no_command) return report(explain(app, error));
    std::ostringstream help;
    app.exit(error, help, help);
    return finish(print(help.str()));
  }
  return finish(action());
}

}  // namespace

}  // namespace sluice

int main(int argc, char** argv) {
  sluice::report_illegal_instructions();
  sluice::occupy_standard_streams();
  spdlog::set_default_logger(spdlog::stderr_color_st("sluice"));
  spdlog::set_level(spdlog::level::warn);
  sluice::watch_interrupts();
  sluice::report_truncated_files();
  std::ios::sync_with_stdio(false);  // so that std::cin knows what it has already read
  try {
    return sluice::run_program(argc, argv);
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "sluice: out of memory: try a smaller --context or a smaller model\n");
  } catch (const std::system_error& error) {
    std::fprintf(stderr, "sluice: the system refused (%s): try fewer --threads or --stages\n", error.what());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "sluice: %s\n", error.what());
  }
  return 1;
}
