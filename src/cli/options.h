// Options that mean the same in every command.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <type_traits>
#include <vector>

#include "base/choice.h"
#include "cli/values.h"
#include "session/options.h"

namespace sluice {

// Adds an option; the same with a default, which the help shows.
template <class T>
CLI::Option* add_checked(CLI::App& command, const std::string& name, T& value, const CLI::Validator& check,
                         const std::string& what) {
  return command.add_option(name, value, what)->check(check);
}
template <class T>
CLI::Option* add_value(CLI::App& command, const std::string& name, T& value, const CLI::Validator& check,
                       const std::string& what) {
  return add_checked(command, name, value, check, what)->capture_default_str();
}

// Adds an option whose value is one of a table's names. Value: T or std::optional<T>.
template <class Value, class T, size_t N>
CLI::Option& add_choice(CLI::App& command, const std::string& name, Value& value, const Choice<T> (&choices)[N],
                        const std::string& what) {
  const auto take = [&value, &choices](const std::string& text) { value = value_of(choices, text).value(); };
  CLI::Option& option = *command.add_option_function<std::string>(name, take, what);
  if constexpr (std::is_same_v<Value, T>) option.default_str(name_of(choices, value));
  return *option.check(one_of(names_of(choices)));
}

// Adds an option whose value is a list with commas. It takes one argument: what follows may be the prompt.
template <class T>
CLI::Option& add_list_option(CLI::App& command, const std::string& name, std::vector<T>& values,
                             const std::string& what) {
  return *command.add_option(name, values, what)->delimiter(',')->allow_extra_args(false);
}

// The same; the values are of a table's names.
template <class T, size_t N>
CLI::Option& add_choices(CLI::App& command, const std::string& name, std::vector<T>& values,
                         const Choice<T> (&choices)[N], const std::string& what) {
  const auto take = [&values, &choices](const std::vector<std::string>& texts) {
    values.clear();
    for (const std::string& text : texts) values.push_back(value_of(choices, text).value());
  };
  return *command.add_option_function<std::vector<std::string>>(name, take, what)
              ->delimiter(',')
              ->allow_extra_args(false)
              ->check(one_of(names_of(choices)));
}

// --device, --draft-device and --width-lock.
void add_device_options(CLI::App& command, SessionOptions& options);

// What --temp and --temps take.
CLI::Validator temperature();

// Adds -m, --model.
void add_model_option(CLI::App& command, std::string& model);
// Adds --draft.
void add_draft_option(CLI::App& command, std::vector<std::string>& drafts);
// Adds --compact, which takes effect for the whole process.
void add_compact_option(CLI::App& command);
// Adds --kv.
void add_kv_option(CLI::App& command, KvType& kv, const std::string& what = "Type of the KV cache");
// Adds what chooses and runs a method: --method to --threads.
void add_engine_options(CLI::App& command, SessionOptions& options);
// Adds --hosts, which makes the stages, and what goes with it.
void add_hosts_options(CLI::App& command, SessionOptions& options, CLI::Option& stages);
// Adds --secret and --patience.
void add_secret_options(CLI::App& command, std::string& secret, double& patience);
// Adds what shapes the text: -n, --temp to --seed, --chat-template-file, --raw.
void add_generation_options(CLI::App& command, SessionOptions& options);

// That of the options that were given to the command each is read by one of these methods.
Status check_settings(const CLI::App& command, const std::vector<std::string>& methods);

// What CLI11 can't see: combinations that make no sense, and files that can't be written.
Status check_options(const SessionOptions& options);

}  // namespace sluice
