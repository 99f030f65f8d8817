// Numbers of the server that somebody chose: what one client may take from the others.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace sluice::policy {

// Bytes of a request's head and of its body: the longest contexts there are, written as JSON, are shorter.
inline constexpr uint32_t kLongestHead = 16 << 10;
inline constexpr uint64_t kLongestBody = uint64_t{8} << 20;
// Bytes of bodies that are being read or answered, of all connections together.
inline constexpr uint64_t kMostBodies = uint64_t{256} << 20;
// Bytes of a body from which on it is read where it holds up nobody with a shorter one.
inline constexpr uint64_t kMuchBody = uint64_t{256} << 10;
// Levels of JSON in a body: no request of the API has more than a few.
inline constexpr int kDeepestBody = 64;
// Members of an object in a body: schemas have some hundreds, and who looks for one looks through them.
inline constexpr size_t kMostMembers = 4096;
// Stop strings of a request, and bytes of each.
inline constexpr size_t kMostStops = 16, kLongestStop = 256;
// Answers to one request: each takes cells as a request does.
inline constexpr int32_t kMostChoices = 16;
// Prompts of a request, likewise.
inline constexpr size_t kMostPrompts = 16;
// Tools of a request: each becomes part of its prompt.
inline constexpr size_t kMostTools = 128;
// Members that a request wants of its answer.
inline constexpr size_t kMostFields = 64;
// Biases of a request: they travel to the last stage.
inline constexpr size_t kMostBiases = 1024;

// Connections beyond the limit that are told so before they are closed; others are closed at once.
inline constexpr size_t kMostRefused = 64;
// A connection that is closed is read for so long, or so many bytes, lest the system throw away what it was told.
inline constexpr std::chrono::seconds kLinger{2};
inline constexpr size_t kLingerBytes = size_t{16} << 20;
// Before connections are taken again, when the system had no more of them.
inline constexpr std::chrono::milliseconds kAcceptAgain{100};

// Bytes of what a server and its engine say at a time: the longest prompt with its grammar is shorter.
inline constexpr uint32_t kLongestFrame = uint32_t{64} << 20;
inline constexpr size_t kReadAtOnce = size_t{64} << 10;
// An engine that ends is started again. After so many ends in a row before anything was generated it is not, and a
// request is given up that so many ends in a row have found no further than the one before: it may be what ends it.
inline constexpr int kMostEnds = 16;
inline constexpr int kMostEndsOfARequest = 8;
// Before another one is started where the last one has generated nothing; each time twice as long, up to so much.
inline constexpr std::chrono::milliseconds kStartAgain{50}, kStartAgainAtMost{2000};
// That an engine has to end by itself when the server does.
inline constexpr std::chrono::seconds kEngineEnds{5};

// How often it is looked whether all are answered, where the server ends after that.
inline constexpr std::chrono::milliseconds kLookWhetherDone{10};

// Seconds after which the engine looks for new requests although nothing has happened.
inline constexpr double kLookForNews = 0.02;
// Between two looks for stages that were lost, when nothing is asked for.
inline constexpr std::chrono::seconds kLookForStages{5};
// Requests that have ended and whose cells are kept until somebody needs them: the next turn of a chat begins there.
inline constexpr size_t kKeptRequests = 64;
// Tokens in common that make it worth to share cells: fewer are computed as fast as a request waits for another.
inline constexpr size_t kWorthSharing = 16;

// Pages that may watch the engine at a time, and how often they are told what it has done and how it does.
inline constexpr size_t kMostWatching = 16;
inline constexpr std::chrono::milliseconds kTellSteps{100};
inline constexpr int kTellFiguresEvery = 5;  // times
// A stream that can be taken up again is kept so long without a client, up to so many bytes, and so many of them.
inline constexpr std::chrono::seconds kStreamWaits{30};
inline constexpr size_t kLongestKeptStream = size_t{4} << 20;
inline constexpr size_t kMostStreams = 256;

// What is kept to be told: more than a fast engine does in the time. A page that has not taken so many bytes of what it
// was told is told nothing until it has.
inline constexpr size_t kMostSteps = 4096;
inline constexpr size_t kMostUntaken = 256 << 10;

}  // namespace sluice::policy
