// Keeps the guesses of a request to what its answer's grammar permits.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"
#include "verify/constraint.h"
#include "wire/draws.h"

namespace sluice {

class Guide {
 public:
  // constraint: of an answer that begins.
  explicit Guide(std::unique_ptr<Constraint> constraint) : constraint_(std::move(constraint)) {}

  // What a source said may come after an answer's tokens and some guesses, without what may not; the rest makes up for
  // it. Where nothing is left and few tokens may come, those; where only one may, that is certain. Where the constraint
  // has failed, all that was said.
  std::vector<Candidate> permitted(std::span<const Token> answer, std::span<const Token> guesses,
                                   std::vector<Candidate> said);

 private:
  void go_to(std::span<const Token> answer, std::span<const Token> guesses);

  std::unique_ptr<Constraint> constraint_;
  std::vector<Token> at_;  // what it has accepted
};

}  // namespace sluice
