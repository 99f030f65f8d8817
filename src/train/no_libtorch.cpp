// The build without libtorch.
#include "train/train.h"

namespace sluice {

namespace {

tl::unexpected<Error> none() {
  return runtime_error(
      "this build has no libtorch, which training needs: install libtorch-dev and libopenblas0-pthread, then build "
      "with "
      "-DSLUICE_TRAIN=ON");
}

}  // namespace

Result<TrainFigures> train_spd(const ModelFile&, const SpdOptions&, const TrainOptions&, const TrainHooks&) {
  return none();
}

}  // namespace sluice
