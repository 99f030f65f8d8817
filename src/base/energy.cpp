#include "base/energy.h"

#include <filesystem>
#include <fstream>

namespace sluice {

namespace {

namespace fs = std::filesystem;

std::optional<double> number_in(const std::string& path) {
  std::ifstream file(path);
  double value = 0;
  return file >> value ? std::optional(value) : std::nullopt;
}

// intel-rapl:0, not its parts, as intel-rapl:0:1. AMD's processors have the same name.
bool is_package(const std::string& name) {
  constexpr std::string_view kPrefix = "intel-rapl:";
  return name.starts_with(kPrefix) && name.find(':', kPrefix.size()) == std::string::npos;
}

}  // namespace

std::optional<EnergyCounter> EnergyCounter::open(const std::string& folder) {
  EnergyCounter counter;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none)) {
    if (!is_package(entry.path().filename())) continue;
    const auto range = number_in(entry.path() / "max_energy_range_uj"), now = number_in(entry.path() / "energy_uj");
    if (range && now) counter.packages_.push_back({entry.path(), *range, *now});
  }
  return counter.packages_.empty() ? std::nullopt : std::optional(std::move(counter));
}

std::optional<double> EnergyCounter::take() {
  double used = 0;
  for (Package& package : packages_) {
    const auto now = number_in(package.folder + "/energy_uj");
    if (!now) return std::nullopt;
    used += *now - package.last + (*now < package.last ? package.range : 0.0);
    package.last = *now;
  }
  return used * 1e-6;
}

}  // namespace sluice
