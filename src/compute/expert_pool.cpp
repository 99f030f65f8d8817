#include "compute/expert_pool.h"

#include <algorithm>
#include <string>

namespace sluice {

namespace {

constexpr size_t kLine = 64;  // matrices begin at one of the cache's
size_t in_lines(size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

std::string mib(size_t bytes) { return std::to_string((bytes >> 20) + 1) + " MiB"; }

}  // namespace

size_t ExpertPool::bytes_of(const FeedForward& network) {
  return in_lines(network.gate.packed_bytes()) + in_lines(network.up.packed_bytes()) +
         in_lines(network.down.packed_bytes());
}

void ExpertPool::add(Mixture& mixture) {
  mixture.first_in_pool = static_cast<int32_t>(experts_.size());
  mixture.pool = this;
  for (int32_t i = 0; i < mixture.rules.n_experts; ++i) {
    FeedForward& network = mixture.networks[static_cast<size_t>(i)];
    slot_bytes_ = std::max(slot_bytes_, bytes_of(network));
    experts_.push_back({&network});
  }
  most_of_layer_ = std::max(most_of_layer_, mixture.rules.n_experts);
}

Status ExpertPool::begin(ThreadTeam& team) {
  const auto n_slots = std::min(static_cast<size_t>(bytes_) / std::max<size_t>(slot_bytes_, 1), experts_.size());
  if (n_slots < static_cast<size_t>(most_of_layer_))
    return input_error("the experts of a layer need " + mib(static_cast<size_t>(most_of_layer_) * slot_bytes_) +
                       " of memory, and " + mib(static_cast<size_t>(bytes_)) +
                       " are left for all: give more by --memory");
  memory_ = Memory(n_slots * slot_bytes_, Memory::Pages::kHuge);
  in_slot_.assign(n_slots, -1);
  for (size_t i = 0; i < n_slots; ++i) {  // one by one, so that little of the file is in memory besides
    in_slot_[i] = static_cast<int32_t>(i);
    place(experts_[i], in_slot_[i]);
    team.run([&](int thread) {
      for (const Linear* matrix : to_pack_) matrix->pack(part_of(matrix->n_grains(), 1, thread, team.size()));
    });
    packed();
  }
  return {};
}

void ExpertPool::place(Expert& expert, int32_t slot) {
  expert.slot = slot;
  std::byte* at = memory_.data() + static_cast<size_t>(slot) * slot_bytes_;
  for (Linear* matrix : {&expert.network->gate, &expert.network->up, &expert.network->down}) {
    if (!matrix->is_packed()) continue;
    matrix->place(at);
    at += in_lines(matrix->packed_bytes());
    to_pack_.push_back(matrix);
  }
}

bool ExpertPool::lacks_some(const Mixture& mixture, std::span<const ExpertGroups::Group> wanted) const {
  return std::ranges::any_of(wanted, [&](const ExpertGroups::Group& group) {
    return !mixture.is_shared(group.network) &&
           experts_[static_cast<size_t>(mixture.first_in_pool + group.network)].slot < 0;
  });
}

void ExpertPool::use(const Mixture& mixture, std::span<const ExpertGroups::Group> wanted) {
  ++time_;
  for (const ExpertGroups::Group& group : wanted)
    if (!mixture.is_shared(group.network)) expert(mixture, group.network).used = time_;
}

// That of the expert that was used longest ago. REQUIRES: one is not used now.
int32_t ExpertPool::free_slot() {
  const auto used = [this](int32_t in_slot) { return experts_[static_cast<size_t>(in_slot)].used; };
  const auto oldest = std::ranges::min_element(in_slot_, {}, used);
  SLUICE_CHECK(used(*oldest) < time_, "a layer's experts find room");
  experts_[static_cast<size_t>(*oldest)].slot = -1;
  return static_cast<int32_t>(oldest - in_slot_.begin());
}

void ExpertPool::make_room(const Mixture& mixture, std::span<const ExpertGroups::Group> wanted) {
  use(mixture, wanted);
  for (const ExpertGroups::Group& group : wanted) {
    if (mixture.is_shared(group.network)) continue;
    Expert& one = expert(mixture, group.network);
    if (one.slot >= 0) continue;
    const int32_t slot = free_slot();
    in_slot_[static_cast<size_t>(slot)] = mixture.first_in_pool + group.network;
    place(one, slot);
  }
}

void ExpertPool::packed() {
  for (const Linear* matrix : to_pack_) weights_->release(matrix->waiting());
  to_pack_.clear();
}

}  // namespace sluice
