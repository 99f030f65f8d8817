#include "tree/residency.h"

#include <algorithm>
#include <utility>

#include "base/result.h"

namespace sluice {

CellPool::CellPool(int32_t size)
    : size_(size),
      available_(static_cast<size_t>(size)),
      holders_(static_cast<size_t>(size)),
      loose_(static_cast<size_t>((size + kBlock - 1) / kBlock)) {
  for (auto block = static_cast<int32_t>(loose_.size()); block-- > 0;) whole_.push_back(block);
}

Cell CellPool::take(SequenceId sequence) {
  SLUICE_CHECK(available_ > 0, "a cell is left");
  Own& own = own_[sequence];
  if (own.cells.empty()) {
    take_block(own.cells);
    stock(sequence, own);
  }
  const Cell cell = own.cells.back();
  own.cells.pop_back();
  --available_;
  holders_[place(cell)] = 1;
  return cell;
}

void CellPool::share(Cell cell) {
  SLUICE_CHECK(holders_[place(cell)] > 0, "only a cell that somebody holds is shared");
  ++holders_[place(cell)];
  ++shared_;
}

void CellPool::give_back(SequenceId sequence, Cell cell) {
  int32_t& holders = holders_[place(cell)];
  SLUICE_CHECK(holders > 0, "a cell is given back by who holds it");
  if (--holders > 0) {
    --shared_;
    return;
  }
  Own& own = own_[sequence];
  own.cells.push_back(cell);
  stock(sequence, own);
  ++available_;
}

void CellPool::stock(SequenceId sequence, Own& own) {
  if (!std::exchange(own.stocked, true)) stocked_.insert(sequence);
}

void CellPool::close(SequenceId sequence) {
  const auto own = own_.find(sequence);
  if (own == own_.end()) return;
  for (const Cell cell : own->second.cells) scatter(cell);
  own_.erase(own);
  stocked_.erase(sequence);
}

void CellPool::scatter(Cell cell) {
  const int32_t block = cell.value / kBlock;
  std::vector<Cell>& loose = loose_[static_cast<size_t>(block)];
  if (loose.empty()) scattered_.insert(block);
  loose.push_back(cell);
  if (static_cast<int32_t>(loose.size()) < std::min(kBlock, size_ - block * kBlock)) return;
  loose.clear();
  scattered_.erase(block);
  whole_.push_back(block);
}

void CellPool::take_block(std::vector<Cell>& free) {
  if (!whole_.empty()) {
    const int32_t first = whole_.back() * kBlock;
    whole_.pop_back();
    for (int32_t cell = std::min(first + kBlock, size_); cell-- > first;) free.emplace_back(cell);
    return;
  }
  if (scattered_.empty()) return take_from_others(free);
  free.swap(loose_[static_cast<size_t>(*scattered_.begin())]);
  scattered_.erase(scattered_.begin());
}

void CellPool::take_from_others(std::vector<Cell>& free) {
  for (;;) {
    const auto holder = stocked_.begin();
    Own& other = own_.find(*holder)->second;
    if (!other.cells.empty()) {
      free.push_back(other.cells.back());
      other.cells.pop_back();
      return;
    }
    other.stocked = false;
    stocked_.erase(holder);
  }
}

void Residency::cut(size_t length) {
  SLUICE_CHECK(length <= committed_.size(), "a path is cut to a length that it has");
  committed_.resize(length);
  if (checkpoint > length) checkpoint = 0;
  if (length == 0) reached = 0;
}

void Residency::enter(NodeId node, Resident resident) {
  SLUICE_CHECK(node.valid() && resident.cell.valid() && !entered(node), "a node enters a model once");
  if (slots_.empty()) first_ = node.value;
  while (first_ > node.value) slots_.emplace_front(), --first_;
  const auto place = static_cast<size_t>(node.value - first_);
  if (place >= slots_.size()) slots_.resize(place + 1);
  slots_[place] = resident;
  ++n_entered_;
}

void Residency::leave(NodeId node) {
  if (!entered(node)) return;
  slots_[static_cast<size_t>(node.value - first_)] = {};
  --n_entered_;
  while (!slots_.empty() && !slots_.front().cell.valid()) slots_.pop_front(), ++first_;
}

std::vector<Cell> Residency::cells() const {
  std::vector<Cell> cells;
  for (const Resident& there : slots_)
    if (there.cell.valid()) cells.push_back(there.cell);
  return cells;
}

}  // namespace sluice
