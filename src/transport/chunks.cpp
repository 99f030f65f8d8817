#include "transport/chunks.h"

#include <algorithm>
#include <string>
#include <utility>

#include "transport/little_endian.h"

namespace sluice {

namespace {

enum Kind : uint8_t { kFrame = 0, kBeat = 1 };
enum Flag : uint8_t { kBulkFlag = 1, kLastFlag = 2 };

void put_header(Kind kind, uint8_t flags, size_t length, Bytes& out) {
  for (const auto byte : {uint8_t{'S'}, uint8_t{'L'}, uint8_t{kind}, flags}) out.push_back(std::byte{byte});
  put_number(length, sizeof(uint32_t), out);
}

}  // namespace

void ChunkWriter::add(Bytes frame, Priority priority) {
  SLUICE_CHECK(!frame.empty(), "an empty frame says nothing");
  Queue& to = queue(priority);
  to.waiting += frame.size();
  to.frames.push_back(std::move(frame));
}

bool ChunkWriter::fill(Bytes& out) {
  out.clear();
  if (beat_) {
    put_header(kBeat, kLastFlag, sizeof *beat_, out);
    put_number(*beat_, sizeof *beat_, out);
    beat_.reset();
  }
  while (out.size() < kChunkBytes) {
    const bool urgent = !queue(Priority::kUrgent).frames.empty();
    if (!urgent && queue(Priority::kBulk).frames.empty()) break;
    put_chunk(urgent ? Priority::kUrgent : Priority::kBulk, out);
  }
  return !out.empty();
}

void ChunkWriter::put_chunk(Priority priority, Bytes& out) {
  Queue& from = queue(priority);
  const auto left = std::span<const std::byte>(from.frames.front()).subspan(from.gone);
  const auto chunk = left.first(std::min(left.size(), kChunkBytes));
  const bool last = chunk.size() == left.size();
  const int flags = (priority == Priority::kBulk ? kBulkFlag : 0) | (last ? kLastFlag : 0);
  put_header(kFrame, static_cast<uint8_t>(flags), chunk.size(), out);
  out.insert(out.end(), chunk.begin(), chunk.end());
  from.waiting -= chunk.size();
  from.gone += chunk.size();
  if (!last) return;
  buffers_.give_back(std::move(from.frames.front()));
  from.frames.pop_front();
  from.gone = 0;
}

Status ChunkReader::take(std::span<const std::byte> bytes, const Sink& sink) {
  while (!bytes.empty()) {
    if (n_header_ < kChunkHeaderBytes) {
      header_[n_header_++] = bytes.front();
      bytes = bytes.subspan(1);
      if (n_header_ == 2 || n_header_ == kChunkHeaderBytes) SLUICE_TRY_STATUS(begin_chunk(sink));
      continue;
    }
    const auto some = bytes.first(std::min(bytes.size(), left_));
    frame().insert(frame().end(), some.begin(), some.end());
    if (&frame() != &beat_) taken_ += some.size();
    left_ -= some.size();
    bytes = bytes.subspan(some.size());
    if (left_ == 0) SLUICE_TRY_STATUS(end_chunk(sink));
  }
  return {};
}

// The frame or heartbeat that the chunk belongs to.
Bytes& ChunkReader::frame() {
  if (header_[2] == std::byte{kBeat}) return beat_;
  return frames_[(header_[3] & std::byte{kBulkFlag}) != std::byte{0}];
}

Status ChunkReader::begin_chunk(const Sink& sink) {
  if (header_[0] != std::byte{'S'} || header_[1] != std::byte{'L'}) {
    constexpr std::byte kAlert{0x15}, kHandshake{0x16}, kTls{0x03};  // how TLS's records begin
    if (!greeted_ && (header_[0] == kAlert || header_[0] == kHandshake) && header_[1] == kTls)
      return runtime_error("one side uses a secret and the other none: give both the same file by --secret");
    return runtime_error(greeted_ ? "it sent what is no chunk" : "what answers is no sluice of this release");
  }
  if (n_header_ < kChunkHeaderBytes) return {};
  greeted_ = true;
  const auto kind = static_cast<uint8_t>(header_[2]), flags = static_cast<uint8_t>(header_[3]);
  left_ = number(std::span(header_).subspan(4));
  const bool known = kind == kFrame ? flags <= (kBulkFlag | kLastFlag) && left_ <= kChunkBytes
                                    : kind == kBeat && flags == kLastFlag && left_ == sizeof(uint64_t);
  if (!known || left_ == 0) return runtime_error("it sent what is no chunk");
  if (frame().size() + left_ > most_)
    return runtime_error("it sent a frame of more than " + std::to_string(most_) + " bytes");
  if (frame().capacity() == 0 && kind == kFrame) frame() = sink.buffer();
  return {};
}

Status ChunkReader::end_chunk(const Sink& sink) {
  n_header_ = 0;
  if ((header_[3] & std::byte{kLastFlag}) == std::byte{0}) return {};
  if (header_[2] == std::byte{kBeat}) {
    sink.beat(number(beat_));
    beat_.clear();
  } else {
    const bool bulk = (header_[3] & std::byte{kBulkFlag}) != std::byte{0};
    sink.frame(std::exchange(frame(), {}), bulk ? Priority::kBulk : Priority::kUrgent);
  }
  return {};
}

}  // namespace sluice
