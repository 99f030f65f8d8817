#include "cli/meant.h"

#include <algorithm>
#include <numeric>
#include <string_view>
#include <vector>

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
    {"-ngl", "--threads", "Sluice computes on processors only"},
    {"--gpu-layers", "--threads", "Sluice computes on processors only"},
    {"--n-gpu-layers", "--threads", "Sluice computes on processors only"},
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

}  // namespace

std::string meant_by(const CLI::App& command, const std::string& option) {
  const std::string name = option.substr(0, option.find('='));
  for (const auto& [theirs, ours, remedy] : kLlamaCpp)
    if (theirs == name && command.get_option_no_throw(std::string(ours)) != nullptr)
      return remedy.empty() ? "here it is " + std::string(ours) : std::string(remedy);
  if (!name.starts_with("--") || name.size() < 5) return {};
  const std::string near = nearest(command, name);
  return near.empty() ? near : "perhaps " + near;
}

bool looks_like_a_letter_and_its_value(const std::string& argument) {
  return argument.size() > 2 && argument[1] != '-' &&
         std::any_of(std::begin(kLlamaCpp), std::end(kLlamaCpp),
                     [&](const Foreign& row) { return row.theirs == argument; });
}

}  // namespace sluice
