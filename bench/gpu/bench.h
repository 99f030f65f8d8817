// The measurements. Each writes its results as it goes.
#pragma once

#include <string>
#include <vector>

#include "device.h"
#include "record.h"
#include "stage.h"

namespace gpu {

struct Options {
  std::string device = "CPU";
  int threads = 2;
  std::vector<std::string> shapes = {"8b"};
  std::vector<std::string> types = {"q4_K"};
  std::vector<std::string> attentions = {"flash"};
  std::vector<int> rows = {1, 2, 3, 4, 5, 6, 8, 9, 12, 16, 24, 32, 48, 64, 96, 128, 256, 512};
  std::vector<int> layers = {4, 8};
  int cells = 1024;
  int trials = 32;
  double seconds = 0.04;  // of a point of `passes`
  bool plain_graphs = false;
};

ggml_type type_named(const std::string& name);  // throws Refusal

// The device's results are about those of the CPU: the distance of a stage's output, relative to its norm.
void check(const Device& device, const Options& options, Results& results);
// What a stage's pass takes by its rows, and what the output head takes.
void passes(const Device& device, const Options& options, Results& results);
void heads(const Device& device, const Options& options, Results& results);
// The ways between host and device, and what a graph costs that computes next to nothing.
void links(const Device& device, const Options& options, Results& results);
// Upon what a row's bits depend: in products, in attention, in whole stages.
void product_bits(const Device& device, const Options& options, Results& results);
void attention_bits(const Device& device, const Options& options, Results& results);
void stage_bits(const Device& device, const Options& options, Results& results);

}  // namespace gpu
