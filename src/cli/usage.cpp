#include "cli/usage.h"

#include <string>
#include <vector>

#include "cli/values.h"

namespace sluice {

namespace {

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  return names;
}

// What no option or argument wanted.
std::string explain_extra(const CLI::App& app, const CLI::App* command) {
  const auto extras = app.remaining(/*recurse=*/true);
  const std::string extra = extras.empty() ? "" : extras.front();
  if (command == nullptr && !extra.starts_with("-"))
    return "there is no command '" + extra + "', only " + alternatives(command_names(app));
  if (extra.starts_with("-"))
    return "there is no option " + extra +
           (command != nullptr && !app.remaining().empty() ? " before the command" : "");
  if (command->get_name() == "run")
    return "'" + extra +
           "' is one argument too many: put the whole prompt in quotes, as in sluice run \"Why is it so?\"";
  return "'" + extra + "' is one argument too many";
}

std::string explain_mismatch(const std::string& message) {
  const std::string option = message.substr(0, message.find(':'));
  if (message.find("missing") != std::string::npos) return option + " needs a value";
  if (message.find("At Most") != std::string::npos) return option + " is given more than once";
  return message;
}

std::string explain_what(const CLI::App& app, const CLI::App* command, const CLI::ParseError& error) {
  if (dynamic_cast<const CLI::ExtrasError*>(&error) || (command == nullptr && !app.remaining().empty()))
    return explain_extra(app, command);
  const std::string message = error.what();
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error)) return explain_mismatch(message);
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
  const auto chosen = app.get_subcommands();
  const CLI::App* command = chosen.empty() ? nullptr : chosen.front();
  return {ErrorKind::kInput, explain_what(app, command, error) + "; see sluice " +
                                 (command != nullptr ? command->get_name() + " " : "") + "--help"};
}

}  // namespace sluice
