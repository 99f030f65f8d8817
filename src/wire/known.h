// Which values of the wire's enums there are, for who reads bytes (wire/travel.h).
#pragma once

#include "wire/message.h"
#include "wire/sampling.h"

namespace sluice {

inline bool is_known(Rule rule) { return rule <= Rule::kTopP; }
inline bool is_known(GrammarTrigger::Kind kind) { return kind <= GrammarTrigger::Kind::kWholePattern; }
inline bool is_known(Row::Kind kind) { return kind <= Row::Kind::kNode; }
inline bool is_known(KvType type) { return type <= KvType::kQ8_0; }
inline bool is_known(StageRecipe::Kind kind) { return kind <= StageRecipe::Kind::kStored; }
inline bool is_known(Hello::Role role) { return role <= Hello::Role::kTaps; }
inline bool is_known(ErrorKind kind) {
  return kind == ErrorKind::kRuntime || kind == ErrorKind::kInput || kind == ErrorKind::kInterrupted;
}

}  // namespace sluice
