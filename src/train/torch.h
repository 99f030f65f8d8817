// What this folder uses of libtorch, 1.13 or 2.x. For .cpp files and the headers that only they include: nothing
// outside this folder sees libtorch.
#pragma once

#include <torch/autograd.h>
#include <torch/types.h>
#include <torch/utils.h>
