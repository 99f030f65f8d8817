#include "engine/guide.h"

#include <algorithm>
#include <bit>

#include "engine/policy.h"

namespace sluice {

namespace {

// The tokens of a mask, if they are no more than `most`; else none.
std::vector<Token> few_of(const TokenMask& mask, size_t most) {
  std::vector<Token> tokens;
  for (size_t i = 0; i < mask.words.size(); ++i)
    for (auto word = static_cast<uint32_t>(mask.words[i]); word != 0; word &= word - 1) {
      if (tokens.size() == most) return {};
      tokens.push_back(static_cast<Token>(i * TokenMask::kBits) + std::countr_zero(word));
    }
  return tokens;
}

float sum_of(const std::vector<Candidate>& candidates) {
  float sum = 0.0f;
  for (const Candidate& candidate : candidates) sum += candidate.probability;
  return sum;
}

}  // namespace

// From where it was: most of what is asked is about neighbours in a tree.
void Guide::go_to(std::span<const Token> answer, std::span<const Token> guesses) {
  const size_t length = answer.size() + guesses.size();
  const auto token = [&](size_t i) { return i < answer.size() ? answer[i] : guesses[i - answer.size()]; };
  size_t shared = 0;
  while (shared < std::min(at_.size(), length) && at_[shared] == token(shared)) ++shared;
  constraint_->take_back(at_.size() - shared);
  at_.resize(shared);
  for (size_t i = shared; i < length; ++i) {
    constraint_->accept(token(i));
    at_.push_back(token(i));
  }
}

std::vector<Candidate> Guide::permitted(std::span<const Token> answer, std::span<const Token> guesses,
                                        std::vector<Candidate> said) {
  go_to(answer, guesses);
  const TokenMask* mask = constraint_->permitted();
  if (mask == nullptr || constraint_->failed()) return said;
  const float before = sum_of(said);
  std::erase_if(said, [&](const Candidate& candidate) { return !mask->has(candidate.token); });
  const std::vector<Token> few = few_of(*mask, policy::kFewPermitted);
  if (few.size() == 1 || (said.empty() && !few.empty())) {
    said.clear();
    for (const Token token : few) said.push_back({token, 1.0f / static_cast<float>(few.size())});
    return said;
  }
  const float left = sum_of(said);
  if (left > 0.0f && left < before)
    for (Candidate& candidate : said) candidate.probability = std::min(1.0f, candidate.probability * (before / left));
  return said;
}

}  // namespace sluice
