// The page that shows a run.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace sluice {

// The page around the data of a run, which are what Trace::html() packs: a page of it holds them as JSON in its script
// element `trace`. With `clock` in their header, nanoseconds, the page shows at least so much time, as does another
// that it is to be compared with.
std::string timeline_page(const nlohmann::ordered_json& data);

// The page without data, which belong where kTimelineMarker stands: JSON in which no `<` is left.
std::string_view timeline_template();
inline constexpr std::string_view kTimelineMarker = "@TRACE@";

}  // namespace sluice
