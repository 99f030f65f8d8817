#include "compute/paths.h"

#include <algorithm>

#include "base/result.h"

namespace sluice {
namespace {

template <class... Fns>
struct Match : Fns... {
  using Fns::operator()...;
};
template <class... Fns>
Match(Fns...) -> Match<Fns...>;

}  // namespace

int64_t in_common(const Path& a, const Path& b) {
  const auto shorter = std::min(a.committed.size(), b.committed.size());
  if (a.committed.data() == b.committed.data()) return static_cast<int64_t>(shorter);
  const auto first = a.committed.first(shorter);
  return std::mismatch(first.begin(), first.end(), b.committed.begin()).first - first.begin();
}

bool begins_with(const Path& whole, const Path& part) {
  if (part.size() > whole.size()) return false;
  for (int64_t position = in_common(whole, part); position < part.size(); ++position)
    if (whole[position] != part[position]) return false;
  return true;
}

const Paths::Entry& Paths::entry(Cell cell) const {
  SLUICE_CHECK(cell.valid() && static_cast<size_t>(cell.value) < cells_.size(), "a cell is out of range");
  return cells_[static_cast<size_t>(cell.value)];
}

bool Paths::is_committed(SequenceId sequence, Cell cell, int32_t position) const {
  const auto found = committed_.find(sequence);
  if (found == committed_.end() || position < 0) return false;
  const std::vector<Cell>& path = found->second;
  return static_cast<size_t>(position) < path.size() && path[static_cast<size_t>(position)] == cell;
}

void Paths::commit(SequenceId sequence, Cell cell) {
  const auto found = committed_.find(sequence);
  SLUICE_CHECK(found != committed_.end(), "a commit to a sequence that isn't open");
  std::vector<Cell>& path = found->second;
  SLUICE_CHECK(entry(cell).position == static_cast<int32_t>(path.size()), "a commit is not the next position");
  path.push_back(cell);
  ++cells_[static_cast<size_t>(cell.value)].holders;
}

void Paths::fork(const Fork& fork) {
  const auto from = committed_.find(fork.from);
  SLUICE_CHECK(from != committed_.end(), "a fork of a sequence that isn't open");
  const auto length = static_cast<size_t>(fork.length);
  SLUICE_CHECK(fork.length >= 0 && length <= from->second.size(), "a path is forked beyond its end");
  std::vector<Cell> path(from->second.begin(), from->second.begin() + fork.length);
  for (const Cell cell : path)
    SLUICE_CHECK(entry(cell).holders < kMostHolders, "a cell belongs to more sequences than it may");
  const auto [at, fresh] = committed_.try_emplace(fork.sequence, std::move(path));
  SLUICE_CHECK(fresh, "a sequence is opened twice");
  for (const Cell cell : at->second) ++cells_[static_cast<size_t>(cell.value)].holders;
}

void Paths::cut(std::vector<Cell>& path, size_t length) {
  for (const Cell cell : std::span(path).subspan(length)) --cells_[static_cast<size_t>(cell.value)].holders;
  path.resize(length);
}

void Paths::apply(const PathUpdate& update) {
  std::visit(Match{[&](const Open& open) {
                     const bool fresh = committed_.try_emplace(open.sequence).second;
                     SLUICE_CHECK(fresh, "a sequence is opened twice");
                   },
                   [&](const Fork& f) { fork(f); }, [&](const Commit& c) { commit(c.sequence, c.cell); },
                   [&](const Truncate& truncate) {
                     const auto found = committed_.find(truncate.sequence);
                     SLUICE_CHECK(found != committed_.end(), "a sequence to truncate isn't open");
                     const auto length = static_cast<size_t>(truncate.length);
                     SLUICE_CHECK(truncate.length >= 0 && length <= found->second.size(),
                                  "a path is cut beyond its end");
                     cut(found->second, length);
                   },
                   [&](const Close& close) {
                     const auto found = committed_.find(close.sequence);
                     if (found == committed_.end()) return;
                     cut(found->second, 0);
                     committed_.erase(found);
                   }},
             update);
}

void Paths::enter(const Row& row) {
  SLUICE_CHECK(committed_.contains(row.sequence), "a row of a sequence that isn't open");
  SLUICE_CHECK(row.position >= 0 && row.parent.valid() == (row.position > 0), "a parent is missing, or one too many");
  if (row.parent.valid()) {
    const Entry& parent = entry(row.parent);
    SLUICE_CHECK(is_committed(row.sequence, row.parent, row.position - 1) ||
                     (parent.sequence == row.sequence && parent.position == row.position - 1),
                 "a parent is not the token before its child");
  }
  SLUICE_CHECK(entry(row.cell).holders == 0, "a committed cell is given out again");
  cells_[static_cast<size_t>(row.cell.value)] = {row.sequence, row.position, row.parent};
  if (row.kind == Row::Kind::kPrompt) commit(row.sequence, row.cell);
}

bool Paths::goes_on_from_the_end(Cell cell) const {
  const Entry& token = entry(cell);
  const auto at = committed_.find(token.sequence);
  if (at == committed_.end()) return false;
  const std::vector<Cell>& path = at->second;
  for (int32_t position = token.position; position >= static_cast<int32_t>(path.size()); --position) {
    const Entry& e = entry(cell);
    if (e.sequence != token.sequence || e.position != position || e.holders > 0) return false;
    cell = e.parent;
  }
  return token.position >= static_cast<int32_t>(path.size()) && (path.empty() ? !cell.valid() : cell == path.back());
}

void Paths::find(const Row& row, Path& path) const {
  path.branch.clear();
  path.committed = {};
  Cell cell = row.cell;
  for (int32_t position = row.position; position >= 0; --position) {
    if (is_committed(row.sequence, cell, position)) {
      path.committed = std::span(committed_.at(row.sequence)).first(static_cast<size_t>(position) + 1);
      break;
    }
    const Entry& e = entry(cell);
    SLUICE_CHECK(e.sequence == row.sequence && e.position == position,
                 "a path leads through a cell that was given out again");
    path.branch.push_back(cell);
    cell = e.parent;
  }
  std::reverse(path.branch.begin(), path.branch.end());
}

}  // namespace sluice
