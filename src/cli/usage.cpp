#include "cli/usage.h"

#include <algorithm>
#include <numeric>
#include <string_view>

#include "cli/values.h"

namespace sluice {

namespace {

struct Foreign {
  std::string_view theirs;
  std::string_view ours;    // commands that have this are told
  std::string_view remedy;  // if another thing than that option does it
};

// llama.cpp's common/arg.cpp, as far as names differ.
constexpr Foreign kLlamaCpp[] = {
    {"-p", "prompt", "the prompt stands in quotes, without an option"},
    {"--prompt", "prompt", "the prompt stands in quotes, without an option"},
    {"-f", "prompt", "a prompt in a file is - < FILE"},
    {"--file", "prompt", "a prompt in a file is - < FILE"},
    {"-ngl", "--device", "a stage is on one device with all its layers, as in --device ggml:cuda0,cpu"},
    {"--gpu-layers", "--device", "a stage is on one device with all its layers, as in --device ggml:cuda0,cpu"},
    {"--n-gpu-layers", "--device", "a stage is on one device with all its layers, as in --device ggml:cuda0,cpu"},
    {"-dev", "--device", ""},
    {"-cnv", "prompt", "a conversation is sluice chat"},
    {"--conversation", "prompt", "a conversation is sluice chat"},
    {"-sys", "--system", ""},
    {"--system-prompt", "--system", ""},
    {"-t", "--threads", ""},
    {"-s", "--seed", ""},
    {"--ctx-size", "--context", ""},
    {"--predict", "--max-tokens", ""},
    {"--n-predict", "--max-tokens", ""},
    {"-md", "--draft", ""},
    {"--model-draft", "--draft", ""},
    {"--draft-max", "--depth", ""},
    {"-ctk", "--kv", ""},
    {"--cache-type-k", "--kv", ""},
    {"-ts", "--cuts", ""},
    {"--tensor-split", "--cuts", ""},
    {"--rpc", "--hosts", ""},
};

// Letters to change, insert or leave out (Levenshtein).
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t before = row[0]++;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t changed = before + (a[i - 1] == b[j - 1] ? 0 : 1);
      before = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, changed});
    }
  }
  return row.back();
}

std::string nearest(const CLI::App& command, const std::string& name) {
  constexpr size_t kFar = 3;  // of so many letters another word is made
  std::string best;
  size_t least = std::min(kFar, (name.size() - 2 + 1) / 2);  // a short word must be nearer
  for (const CLI::Option* option : command.get_options())
    for (const std::string& long_name : option->get_lnames()) {
      const std::string ours = "--" + long_name;
      const size_t away = name.starts_with(ours) || ours.starts_with(name) ? 1 : distance(name, ours);
      if (away >= least) continue;
      least = away;
      best = ours;
    }
  return best;
}

// What to type for `option`, as written ("--metod", "-ngl", "--predict=8"): another of llama.cpp's spelling, or the
// command's option whose name is nearest. Empty where nothing is near.
std::string meant_by(const CLI::App& command, const std::string& option) {
  const std::string name = option.substr(0, option.find('='));
  for (const auto& [theirs, ours, remedy] : kLlamaCpp)
    if (theirs == name && command.get_option_no_throw(std::string(ours)) != nullptr)
      return remedy.empty() ? "here it is " + std::string(ours) : std::string(remedy);
  if (!name.starts_with("--") || name.size() < 5) return {};
  const std::string near = nearest(command, name);
  return near.empty() ? near : "perhaps " + near;
}

// An option of llama.cpp that would be read as one letter and its value: -ngl as -n gl.
bool looks_like_a_letter_and_its_value(const std::string& argument) {
  return argument.size() > 2 && argument[1] != '-' &&
         std::any_of(std::begin(kLlamaCpp), std::end(kLlamaCpp),
                     [&](const Foreign& row) { return row.theirs == argument; });
}

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : commands_of(app)) names.push_back(command->get_name());
  return names;
}

std::string no_option(const CLI::App& command, const std::string& option) {
  const std::string meant = meant_by(command, option);
  return "there is no option " + option + (meant.empty() ? "" : ": " + meant);
}

// What no option or argument wanted.
std::string explain_extra(const CLI::App& app, const CLI::App* command) {
  const auto extras = app.remaining(/*recurse=*/true);
  const std::string extra = extras.empty() ? "" : extras.front();
  if (command == nullptr && !extra.starts_with("-"))
    return "there is no command '" + extra + "', only " + alternatives(command_names(app)) +
           (extra.find(' ') == std::string::npos ? "" : ": a prompt is answered by sluice run");
  if (extra == "--" && extras.size() > 1)
    return "'" + extras[1] + "' is one argument too many, after --: options stand before it";
  if (extra.starts_with("-")) {
    if (command != nullptr && !app.remaining().empty()) return "there is no option " + extra + " before the command";
    return no_option(command == nullptr ? app : *command, extra);
  }
  if (command->get_name() == "run")
    return "'" + extra + "' is one argument too many, after the prompt '" +
           command->get_option("prompt")->as<std::string>() +
           "': put the whole prompt in quotes, as in sluice run \"Why is it so?\"";
  return "'" + extra + "' is one argument too many" +
         (command->get_name() == "chat"    ? ": a chat reads line by line; sluice run answers one prompt"
          : command->get_name() == "bench" ? ": the items of a list stand together, as in --methods ar,surge"
                                           : "");
}

// `command`: its name, or those of a command and of one of its own.
std::string see_help(const std::string& command) {
  return "; see sluice " + command + (command.empty() ? "" : " ") + "--help";
}

std::string explain_mismatch(const std::string& message) {
  const std::string option = message.substr(0, message.find(':'));
  if (message.find("missing") != std::string::npos) return option + " needs a value";
  if (message.find("At Most") != std::string::npos) return option + " is given more than once";
  return message;
}

// What an option or an argument is, is in its help.
std::string explain_missing(const CLI::App* command, const std::string& message) {
  if (command != nullptr && message.starts_with("A subcommand"))
    return "name what to " + command->get_name() + ": " + alternatives(command_names(*command));
  const std::string name = message.substr(0, message.find(" is required"));
  const CLI::Option* option = command == nullptr ? nullptr : command->get_option_no_throw(name);
  return option == nullptr ? message : name + " is missing: " + option->get_description();
}

std::string explain_what(const CLI::App& app, const CLI::App* command, const CLI::ParseError& error) {
  if (dynamic_cast<const CLI::ExtrasError*>(&error) || (command == nullptr && !app.remaining().empty()))
    return explain_extra(app, command);
  const std::string message = error.what();
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error)) return explain_mismatch(message);
  if (dynamic_cast<const CLI::RequiredError*>(&error)) return explain_missing(command, message);
  if (dynamic_cast<const CLI::ConversionError*>(&error)) {  // of a flag: values have been checked before
    const size_t begin = message.find("--"), end = message.find(" = ");
    if (begin < end && end != std::string::npos) return message.substr(begin, end - begin) + " takes no value";
  }
  const std::string_view excludes = " excludes ";
  if (const size_t at = message.find(excludes);
      at != std::string::npos && dynamic_cast<const CLI::ExcludesError*>(&error))
    return message.substr(0, at) + " and " + message.substr(at + excludes.size()) + " cannot be given together";
  return message;
}

}  // namespace

Error explain(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* command = nullptr;
  std::string names;
  for (auto chosen = app.get_subcommands(); !chosen.empty(); chosen = command->get_subcommands()) {
    command = chosen.front();
    names += (names.empty() ? "" : " ") + command->get_name();
  }
  return {ErrorKind::kInput, explain_what(app, command, error) + see_help(names)};
}

Status refuse_foreign(const CLI::App& app, const std::vector<std::string>& arguments) {
  const auto foreign = std::find_if(arguments.begin(), std::find(arguments.begin(), arguments.end(), "--"),
                                    looks_like_a_letter_and_its_value);
  for (const CLI::App* command : commands_of(app))
    if (foreign != arguments.end() && *foreign != "--" && command->get_name() == arguments.front())
      return input_error(no_option(*command, *foreign) + see_help(command->get_name()));
  return {};
}

}  // namespace sluice
