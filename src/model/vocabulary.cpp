#include "model/vocabulary.h"

namespace sluice {

Status check_vocabulary(const gguf::Header&) { return {}; }

}  // namespace sluice
