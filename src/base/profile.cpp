#include "base/profile.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <sstream>

namespace sluice {

namespace {

struct Shipped {
  const char* name;
  const char* json;
};

// The profiles that come with the program. Figures of the SpecPipe paper: section 4.2 (302.39 ms a token over 8
// stages), 3.3.1 (17 ms for the 1B draft), 3.3.3 (a step every 64 rows), 4.2 (about 5 ms of pruning).
constexpr Shipped kShipped[] = {
    {"uniform", R"({"name": "uniform", "description": "every stage takes 1 ms, whatever the rows; links cost nothing",
      "source": "made up", "stage": {"points": [[1, 0.001]], "between": "step", "every": 1048576, "add": 0},
      "draft": {"points": [[1, 0.00045]], "between": "step", "every": 1048576, "add": 0}})"},
    {"paper-8x",
     R"({"name": "paper-8x", "description": "eight RTX 3090 on PCIe, Llama 3.1 70B, one L40 for the 1B draft",
      "source": "SpecPipe paper: sections 3.3.1, 3.3.3, 4.2; the slope past 64 rows is its Figure 9 in words; PCIe 4.0 assumed at 12 GB/s and 20 us",
      "stage": {"points": [[1, 0.0378], [64, 0.0378]], "between": "step", "every": 64, "add": 0.0378},
      "draft": {"points": [[1, 0.017], [64, 0.017]], "between": "step", "every": 64, "add": 0.017},
      "prune_seconds": 0.005, "link": {"latency": 20e-6, "bandwidth": 12e9}})"},
    {"moe-8x",
     R"({"name": "moe-8x", "description": "as paper-8x, but a mixture of experts: 8 of 128 a row, two thirds of what a row reads",
      "source": "paper-8x; experts and their share as in Qwen3 30B-A3B and 235B-A22B, each row choosing for itself",
      "stage": {"points": [[1, 0.0378], [64, 0.0378]], "between": "step", "every": 64, "add": 0.0378},
      "experts": {"of": 128, "used": 8, "share": 0.67},
      "draft": {"points": [[1, 0.017], [64, 0.017]], "between": "step", "every": 64, "add": 0.017},
      "prune_seconds": 0.005, "link": {"latency": 20e-6, "bandwidth": 12e9}})"},
    {"paper-8x-10gbe", R"({"name": "paper-8x-10gbe", "description": "as paper-8x, but over 10 Gbit/s Ethernet of 1 ms",
      "source": "SpecPipe paper; latency assumed",
      "stage": {"points": [[1, 0.0378], [64, 0.0378]], "between": "step", "every": 64, "add": 0.0378},
      "draft": {"points": [[1, 0.017], [64, 0.017]], "between": "step", "every": 64, "add": 0.017},
      "prune_seconds": 0.005, "link": {"latency": 1e-3, "bandwidth": 1.25e9}})"},
    {"wan-6",
     R"({"name": "wan-6", "description": "six stages on hosts 22 to 75 ms apart, 100 Mbit/s; the draft beside the coordinator",
      "source": "made up",
      "stage": {"points": [[1, 0.012]], "between": "step", "every": 1048576, "add": 0},
      "draft": {"points": [[1, 0.010]], "between": "step", "every": 1048576, "add": 0},
      "edges": [{"latency": 0.022, "bandwidth": 12.5e6, "jitter": 0.1},
                {"latency": 0.038, "bandwidth": 12.5e6, "jitter": 0.1},
                {"latency": 0.057, "bandwidth": 12.5e6, "jitter": 0.1},
                {"latency": 0.075, "bandwidth": 12.5e6, "jitter": 0.1},
                {"latency": 0.046, "bandwidth": 12.5e6, "jitter": 0.1},
                {"latency": 0.031, "bandwidth": 12.5e6, "jitter": 0.1},
                {"latency": 0.046, "bandwidth": 12.5e6, "jitter": 0.1}], "seed": 1})"},
};

// Several links one after another.
Link in_a_row(std::span<const Link> links) {
  Link all;
  double varies = 0.0;
  for (const Link& link : links) {
    all.latency += link.latency;
    varies += link.latency * link.jitter;
    if (link.bandwidth > 0.0 && (all.bandwidth <= 0.0 || link.bandwidth < all.bandwidth))
      all.bandwidth = link.bandwidth;
  }
  if (all.latency > 0.0) all.jitter = varies / all.latency;
  return all;
}

Link shorter(const Link& a, const Link& b) { return b.latency < a.latency ? b : a; }

constexpr double kMostRows = 1e9, kLongest = 1e6;  // seconds; beyond them sums and clocks would overflow
constexpr double kMostExperts = 65536;

Result<double> number(const nlohmann::json& j, double low, double high, const std::string& where) {
  if (!j.is_number()) return input_error(where + " must be a number");
  const double value = j.get<double>();
  if (!(value >= low && value <= high)) {
    std::ostringstream range;
    range << where << " must be from " << low << " to " << high;
    return input_error(range.str());
  }
  return value;
}

// Misspelt keys would be taken for ones that are not there.
Status check_keys(const nlohmann::json& j, std::initializer_list<const char*> known, const std::string& where) {
  for (const auto& item : j.items()) {
    const std::string& key = item.key();
    if (std::any_of(known.begin(), known.end(), [&](const char* k) { return key == k; })) continue;
    std::string names;
    for (const char* k : known) names += (names.empty() ? "" : ", ") + std::string(k);
    return input_error(where + ": there is no key \"" + key + "\"; there are " + names);
  }
  return {};
}

auto within(double low, double high) {
  return [=](const nlohmann::json& j, const std::string& where) { return number(j, low, high, where); };
}

// What an object says under a key, if it says anything there, becomes the field. where: of the object, as it stands
// before the key.
template <class T, class Parse>
Status take(const nlohmann::json& j, const char* key, T& field, const std::string& where, Parse parse) {
  if (!j.contains(key)) return {};
  SLUICE_TRY(field, parse(j[key], where + key));
  return {};
}

Result<Link> parse_link(const nlohmann::json& j, const std::string& where) {
  if (!j.is_object())
    return input_error(where +
                       " must be an object such as {\"latency\": 0.001, \"bandwidth\": 1.25e8, \"jitter\": 0.1}");
  SLUICE_TRY_STATUS(check_keys(j, {"latency", "bandwidth", "jitter"}, where));
  Link link;
  SLUICE_TRY_STATUS(take(j, "latency", link.latency, where + ".", within(0, kLongest)));
  if (j.value("bandwidth", nlohmann::json()) != 0)  // unlimited
    SLUICE_TRY_STATUS(take(j, "bandwidth", link.bandwidth, where + ".", within(1, 1e18)));
  SLUICE_TRY_STATUS(take(j, "jitter", link.jitter, where + ".", within(0, 1)));
  return link;
}

// A list, each entry of which parse() takes.
template <class T, class Parse>
auto list_of(size_t least, const char* what, Parse parse) {
  return [=](const nlohmann::json& j, const std::string& where) -> Result<std::vector<T>> {
    if (!j.is_array() || j.size() < least) return input_error(where + " must be a list of " + what);
    std::vector<T> list;
    for (size_t i = 0; i < j.size(); ++i) {
      SLUICE_TRY(list.emplace_back(), parse(j[i], where + "[" + std::to_string(i) + "]"));
    }
    return list;
  };
}

Result<ExpertCost> parse_experts(const nlohmann::json& j, const std::string& where) {
  if (!j.is_object() || !j.contains("of") || !j.contains("used") || !j.contains("share"))
    return input_error(where + " must be an object such as {\"of\": 128, \"used\": 8, \"share\": 0.67}");
  SLUICE_TRY_STATUS(check_keys(j, {"of", "used", "share"}, where));
  SLUICE_TRY(const double of, number(j["of"], 1, kMostExperts, where + ".of"));
  SLUICE_TRY(const double used, number(j["used"], 1, of, where + ".used"));
  SLUICE_TRY(const double share, number(j["share"], 0, 1, where + ".share"));
  if (of != std::floor(of) || used != std::floor(used)) return input_error(where + ": experts are whole numbers");
  return ExpertCost{static_cast<int32_t>(of), static_cast<int32_t>(used), share};
}

nlohmann::json link_json(const Link& link) {
  nlohmann::json j = {{"latency", link.latency}, {"bandwidth", link.bandwidth}};
  if (link.jitter > 0) j["jitter"] = link.jitter;
  return j;
}

// Where a text stops being JSON.
std::string where_it_breaks(const std::string& text) {
  try {
    [[maybe_unused]] const auto parsed = nlohmann::json::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    const auto end = text.begin() + static_cast<ptrdiff_t>(std::min(error.byte, text.size()));
    return ": its text breaks off or is wrong in line " + std::to_string(1 + std::count(text.begin(), end, '\n'));
  }
  return "";
}

Result<CostCurve> parse_curve(const nlohmann::json& j, const std::string& where) {
  if (!j.is_object() || !j.contains("points") || !j["points"].is_array() || j["points"].empty())
    return input_error(where + " must be an object with \"points\": [[rows, seconds], …]");
  SLUICE_TRY_STATUS(check_keys(j, {"points", "between", "every", "add"}, where));
  CostCurve curve;
  for (const auto& p : j["points"]) {
    if (!p.is_array() || p.size() != 2) return input_error(where + ".points must hold pairs [rows, seconds]");
    SLUICE_TRY(const double rows, number(p[0], 1, kMostRows, where + ".points: rows"));
    SLUICE_TRY(const double seconds, number(p[1], 0, kLongest, where + ".points: seconds"));
    if (!curve.points.empty() && rows <= curve.points.back().rows)
      return input_error(where + ".points must come by rising rows");
    curve.points.push_back({rows, seconds});
  }
  const auto between = j.contains("between") ? j["between"] : nlohmann::json("linear");
  if (between != "linear" && between != "step") return input_error(where + ".between must be \"linear\" or \"step\"");
  curve.between = between == "step" ? CostCurve::Between::kStep : CostCurve::Between::kLinear;
  if (j.contains("every") != j.contains("add")) return input_error(where + ": \"every\" and \"add\" go together");
  SLUICE_TRY_STATUS(take(j, "every", curve.step_rows, where + ".", within(1, kMostRows)));
  SLUICE_TRY_STATUS(take(j, "add", curve.step_add, where + ".", within(0, kLongest)));
  return curve;
}

nlohmann::json curve_json(const CostCurve& curve) {
  nlohmann::json j;
  for (const auto& p : curve.points) j["points"].push_back({p.rows, p.seconds});
  j["between"] = curve.between == CostCurve::Between::kStep ? "step" : "linear";
  if (curve.step_rows > 0) {
    j["every"] = curve.step_rows;
    j["add"] = curve.step_add;
  }
  return j;
}

}  // namespace

double ExpertCost::woken(double rows) const {
  return of * (1.0 - std::pow(1.0 - static_cast<double>(used) / of, rows));
}

double CostCurve::at(double rows) const {
  if (points.empty() || rows <= 0) return 0.0;
  const auto next =
      std::lower_bound(points.begin(), points.end(), rows, [](const Point& p, double r) { return p.rows < r; });
  if (next == points.begin()) return next->seconds;
  if (next != points.end()) {
    if (between == Between::kStep) return next->seconds;
    const Point& last = *(next - 1);
    return last.seconds + (next->seconds - last.seconds) * (rows - last.rows) / (next->rows - last.rows);
  }
  const Point& end = points.back();
  if (step_rows > 0) return end.seconds + step_add * std::ceil((rows - end.rows) / step_rows);
  if (points.size() < 2) return end.seconds * rows / end.rows;
  const Point& before = points[points.size() - 2];
  const double slope = (end.seconds - before.seconds) / (end.rows - before.rows);
  return std::clamp(end.seconds + slope * (rows - end.rows), 0.0, kLongest);  // a falling curve stops at nothing
}

CostCurve CostCurve::times(double factor) const {
  CostCurve curve = *this;
  for (Point& point : curve.points) point.seconds *= factor;
  curve.step_add *= factor;
  return curve;
}

Result<Profile> Profile::parse(const std::string& text, const std::string& where) {
  const auto j = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!j.is_object()) return input_error("profile " + where + " is not a JSON object" + where_it_breaks(text));
  SLUICE_TRY_STATUS(check_keys(j,
                               {"name", "description", "source", "stage", "layer", "head", "embedding", "experts",
                                "draft", "prune_seconds", "link", "edges", "direct", "seed", "speeds", "draft_on"},
                               "profile " + where));
  const std::string of = "profile " + where + ": ";
  Profile profile;
  profile.name = where;
  for (auto [key, field] :
       {std::pair{"name", &profile.name}, {"description", &profile.description}, {"source", &profile.source}}) {
    if (!j.contains(key)) continue;
    if (!j[key].is_string()) return input_error(of + key + " must be a text");
    *field = j[key].get<std::string>();
  }
  for (auto [key, curve] : {std::pair{"stage", &profile.stage},
                            {"layer", &profile.layer},
                            {"head", &profile.head},
                            {"embedding", &profile.embedding}})
    SLUICE_TRY_STATUS(take(j, key, *curve, of, parse_curve));
  SLUICE_TRY_STATUS(take(j, "experts", profile.experts, of, parse_experts));
  if (j.contains("draft")) {
    const auto list = j["draft"].is_array() ? j["draft"] : nlohmann::json::array({j["draft"]});
    for (const auto& draft : list) {
      SLUICE_TRY(profile.drafts.emplace_back(), parse_curve(draft, of + "draft"));
    }
  }
  if (j.contains("stage") == j.contains("layer"))
    return input_error("profile " + where + " must give either \"stage\" or \"layer\"");
  SLUICE_TRY_STATUS(take(j, "prune_seconds", profile.prune_seconds, of, within(0, kLongest)));
  SLUICE_TRY_STATUS(take(j, "link", profile.link, of, parse_link));
  SLUICE_TRY_STATUS(
      take(j, "edges", profile.edges, of,
           list_of<Link>(2,
                         "links: from the coordinator to stage 0, from each stage to the next, from the last "
                         "one to the coordinator",
                         parse_link)));
  SLUICE_TRY_STATUS(take(j, "direct", profile.direct, of,
                         list_of<Link>(1, "links: between the coordinator and each stage", parse_link)));
  if (j.contains("direct") && profile.direct.size() + 1 != profile.edges.size())
    return input_error(of + "direct must have one link less than edges, one for each stage");
  SLUICE_TRY_STATUS(
      take(j, "speeds", profile.speeds, of, list_of<double>(1, "numbers, one for each stage", within(1e-3, 1e3))));
  if (j.contains("draft_on")) {
    const bool is_stage = j["draft_on"].is_number_unsigned() && j["draft_on"].get<uint64_t>() < kMostRows;
    if (!is_stage) return input_error(of + "draft_on must be the number of a stage, from 0");
    profile.draft_on = j["draft_on"].get<int32_t>();
  }
  if (j.contains("seed")) {
    if (!j["seed"].is_number_unsigned()) return input_error(of + "seed must be a whole number from 0");
    profile.seed = j["seed"].get<uint64_t>();
  }
  return profile;
}

Status Profile::check_stages(size_t n_stages) const {
  const auto lists = [&](const char* what, size_t listed) -> Status {
    if (listed == n_stages) return {};
    return input_error("profile " + name + " lists the " + what + " of " + std::to_string(listed) + " stages, not of " +
                       std::to_string(n_stages) + ": give --stages " + std::to_string(listed) + ", or as many --hosts");
  };
  if (!edges.empty()) SLUICE_TRY_STATUS(lists("edges", edges.size() - 1));
  if (!speeds.empty()) SLUICE_TRY_STATUS(lists("speeds", speeds.size()));
  if (draft_on && static_cast<size_t>(*draft_on) >= n_stages)
    return input_error("profile " + name + " has drafts run with stage " + std::to_string(*draft_on) +
                       ": give --stages " + std::to_string(*draft_on + 1) + " or more");
  return {};
}

Link Profile::way_to(size_t stage) const {
  if (!direct.empty()) return direct[stage];
  return shorter(in_a_row(std::span(edges).first(stage + 1)), in_a_row(std::span(edges).subspan(stage + 1)));
}

Result<Profile> Profile::for_draft(size_t i, size_t n, int32_t n_stages) const {
  if (drafts.empty()) return input_error("profile " + name + " gives no time for a draft model (\"draft\")");
  const size_t missing = n - std::min(n, drafts.size());
  Profile profile;
  profile.name = name;
  profile.link = link;
  profile.seed = seed;
  const double faster = n_stages * (draft_on ? speed(static_cast<size_t>(*draft_on)) : 1.0);
  const CostCurve& pass = drafts[drafts.size() - std::min(n, drafts.size()) + (i < missing ? 0 : i - missing)];
  profile.stage = pass.times(1.0 / faster);
  if (edges.empty()) return profile;
  if (draft_on) profile.link = way_to(static_cast<size_t>(*draft_on));
  if (profile.link.latency > 0 || profile.link.bandwidth > 0) {  // it is somewhere else: there and back
    profile.edges.resize(static_cast<size_t>(n_stages) + 1);
    profile.edges.front() = profile.edges.back() = profile.link;
  }
  return profile;
}

Result<Profile> Profile::load(const std::string& name_or_path) {
  for (const auto& shipped : kShipped)
    if (name_or_path == shipped.name) return parse(shipped.json, shipped.name);
  std::ifstream file(name_or_path);
  std::error_code error;
  if (!file || std::filesystem::is_directory(name_or_path, error)) {
    std::string names;
    for (const auto& name : Profile::shipped()) names += (names.empty() ? "" : ", ") + name;
    return input_error("--profile " + name_or_path + ": neither a readable file nor one of " + names);
  }
  std::stringstream text;
  text << file.rdbuf();
  return parse(text.str(), name_or_path);
}

std::vector<std::string> Profile::shipped() {
  std::vector<std::string> names;
  for (const auto& shipped : kShipped) names.emplace_back(shipped.name);
  return names;
}

namespace {

// The values of all links, or one if they are the same; with what belongs behind.
template <class Value>
std::string each_or_one(const std::vector<Link>& links, Value value, const char* unit) {
  std::ostringstream text;
  const bool same = std::ranges::all_of(links, [&](const Link& l) { return value(l) == value(links.front()); });
  for (const Link& link : std::span(links).first(same ? 1 : links.size()))
    text << (text.tellp() > 0 ? ", " : "") << value(link);
  return text.str() + unit;
}

}  // namespace

std::string Profile::links_text() const {
  const std::vector<Link> all = edges.empty() ? std::vector{link} : edges;
  const auto any = [&](double Link::*field) {
    return std::ranges::any_of(all, [&](const Link& l) { return l.*field > 0; });
  };
  if (!any(&Link::latency) && !any(&Link::bandwidth)) return "";
  std::string text = each_or_one(
      all, [](const Link& l) { return l.latency * 1e3; }, " ms");
  if (any(&Link::bandwidth))
    text += ", " + each_or_one(
                       all, [](const Link& l) { return l.bandwidth * 8e-6; }, " Mbit/s");
  if (any(&Link::jitter))
    text += ", jitter " +
            each_or_one(
                all, [](const Link& l) { return l.jitter * 1e2; }, " %, seed ") +
            std::to_string(seed);
  return text;
}

nlohmann::json Profile::to_json() const {
  nlohmann::json j = {{"name", name}, {"description", description}, {"source", source}};
  for (auto [key, curve] : {std::pair{"stage", &stage}, {"layer", &layer}, {"head", &head}, {"embedding", &embedding}})
    if (!curve->points.empty()) j[key] = curve_json(*curve);
  if (experts.of > 0) j["experts"] = {{"of", experts.of}, {"used", experts.used}, {"share", experts.share}};
  for (const CostCurve& draft : drafts) j["draft"].push_back(curve_json(draft));
  j["prune_seconds"] = prune_seconds;
  j["link"] = link_json(link);
  for (const Link& edge : edges) j["edges"].push_back(link_json(edge));
  for (const Link& way : direct) j["direct"].push_back(link_json(way));
  if (!speeds.empty()) j["speeds"] = speeds;
  if (draft_on) j["draft_on"] = *draft_on;
  if (seed > 0) j["seed"] = seed;
  return j;
}

}  // namespace sluice
