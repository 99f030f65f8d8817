// Weights that came from coordinators, kept on this host's disk.
//
// A model has a folder, named by its identity: its files under names of ours, each as long as it is, with holes where
// nobody has asked for what is there; beside each which blocks of it have come, by their hashes; and two locks. So what
// was fetched is mapped like any model, and what is still missing joins it where it belongs.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/block_hashes.h"
#include "model/model_file.h"
#include "wire/weights.h"

namespace sluice {

struct WeightCache {
  std::string folder;  // empty: nothing is fetched
  int64_t bytes = 0;   // for all models together; 0: what the disk has
};

// A lock of a file, as long as this lives. Other processes respect it, and so does this one.
class FileLock {
 public:
  enum class Kind : uint8_t { kShared, kAlone };
  // Does not wait. Nothing: another one has it, or the file can't be made, or was removed just now.
  static std::unique_ptr<FileLock> try_take(const std::string& path, Kind kind);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  explicit FileLock(int fd) : fd_(fd) {}
  int fd_;
};

// Thread safety: none.
class WeightStore {
 public:
  // Opens a model's folder for what is offered, and waits until nobody else fetches into it, or `given_up` says so.
  // Errors (kRuntime) name the folder, or say that what is offered is no model.
  static Result<WeightStore> open(const WeightCache& cache, const Sha256& identity, const WeightsOffered& offered,
                                  const std::function<bool()>& given_up);
  WeightStore(WeightStore&&) noexcept = default;

  struct Block {
    uint32_t file = 0, block = 0;
    uint64_t bytes = 0;
    Sha256 hash;
  };
  // Those of the offer that are not there, in the files' order.
  const std::vector<Block>& missing() const { return missing_; }
  uint64_t missing_bytes() const;

  // Makes room for what is missing: models that nobody uses go, those that were not used for longest first, if the
  // cache would be too large. Errors (kRuntime) say how much room there is, and what would be right.
  Status make_room() const;
  // Errors (kRuntime): it is not what was offered, or the disk is full.
  Status put(const Block& block, const WeightBlock& came);
  // What has come is kept also if the program dies. To be called now and then, and at the end.
  Status keep();

  std::string path() const { return file_path(0); }  // of the model's first file
  const std::string& folder() const { return folder_; }
  // Keeps the model from being removed.
  std::unique_ptr<FileLock> use() { return std::move(used_); }

 private:
  WeightStore() = default;
  Status lock(const std::function<bool()>& given_up);
  Status open_files(const WeightsOffered& offered);
  std::string file_path(size_t file) const;
  std::string blocks_path(size_t file) const { return file_path(file) + ".blocks"; }
  tl::unexpected<Error> failed(const std::string& why) const;

  WeightCache cache_;
  std::string folder_;
  std::unique_ptr<FileLock> used_, fetching_;
  struct Descriptor;
  struct File {
    std::shared_ptr<Descriptor> descriptor;
    uint64_t bytes = 0;
    BlockHashes known;
  };
  std::vector<File> files_;
  std::vector<Block> missing_;
};

// Bytes that the disk holds for all models there.
uint64_t bytes_kept(const WeightCache& cache);

}  // namespace sluice
