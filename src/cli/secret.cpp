#include "transport/secret.h"

#include "cli/commands.h"
#include "cli/output.h"

namespace sluice {

void add_secret(CLI::App& app, Action& action) {
  auto path = std::make_shared<std::string>();
  CLI::App& command = *app.add_subcommand("secret", "Makes a secret for --secret: whoever has it may join");
  command.footer(
      "Copy it to each host, where only you may read it; see docs/hosts.md.\n"
      "Examples:\n"
      "  sluice secret sluice.secret\n"
      "  scp -p sluice.secret b:");
  command.add_option("file", *path, "A new file, which only its owner may read")->required();
  command.callback([path, &action] {
    action = [path]() -> Status {
      SLUICE_TRY_STATUS(make_secret(*path));
      return print(*path + ": 32 random bytes; copy it to each host and give it by --secret\n");
    };
  });
}

}  // namespace sluice
