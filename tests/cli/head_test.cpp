// Trained heads on the command line.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/program.h"
#include "support/tiny_head.h"
#include "support/tiny_model.h"

namespace sluice::test {
namespace {

using nlohmann::json;

// A head of the small model.
std::string head(const TinyHeadSpec& spec) {
  static const ModelFile target = ModelFile::open(small_model()).value();
  return tiny_head(target, spec).write(temp_path("head-" + spec.kind + ".gguf"));
}

json answer(const Program::Arguments& more) {
  Program::Arguments arguments = {"run", "-m", small_model(),  "--threads", "1",
                                  "-n",  "20", "--ignore-eos", "--json",    "hello"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const Ran ran = run_program(arguments);
  EXPECT_EQ(ran.status, 0) << ran.err;
  return json::parse(ran.out, nullptr, false);
}

TEST(Head, InspectSaysWhoseItIsAndWhatItServes) {
  const std::vector<std::pair<TinyHeadSpec, std::string>> all = {{{.kind = "spd"}, "spd"},
                                                                 {{.kind = "eagle3", .vocabulary = {1, 2}}, "eagle3"},
                                                                 {{.kind = "p-eagle"}, "p-eagle"},
                                                                 {{.kind = "exit"}, "ppsd"},
                                                                 {{.kind = "draft"}, "sd"}};
  for (const auto& [spec, method] : all) {
    const std::string path = head(spec);
    const Ran people = run_program({"inspect", path, "--tensors"});
    EXPECT_EQ(people.status, 0) << people.err;
    for (const std::string& word : {"head          " + spec.kind, std::string("4 layers of 64"), method})
      EXPECT_NE(people.out.find(word), std::string::npos) << people.out;
    const json j = json::parse(run_program({"inspect", path, "--json"}).out, nullptr, false);
    EXPECT_EQ(j["head"], spec.kind);
    EXPECT_EQ(j["target"]["layers"], 4);
    EXPECT_EQ(j["methods"][0], method);
    EXPECT_EQ(j["option"], spec.kind == "draft" ? "--draft" : "--head");
    EXPECT_EQ(j.contains("cuts"), spec.kind == "spd");
    EXPECT_EQ(j["draft_vocabulary"], spec.vocabulary.empty() ? j["target"]["vocabulary"].get<int>() : 2);
  }
}

TEST(Head, InspectRefusesABrokenOne) {
  GgufDraft broken = tiny_head(ModelFile::open(small_model()).value(), {.kind = "exit"});
  broken.set("sluice-head.exit.layer", uint32_t{9});
  const std::string path = broken.write(temp_path("broken-head.gguf"));
  EXPECT_TRUE(fails(run_program({"inspect", path}), 2, {path, "exit.layer", "from 1 to 4"}));
}

TEST(Head, ADraftHeadServesAsADraftModel) {
  const json plain = answer({"--method", "ar"})["tokens"];
  const std::string whole = head({.kind = "draft", .layers = {0, 1, 2, 3}});
  for (const char* method : {"sd", "specpipe"}) {
    for (const char* compute : {"full", "lazy"}) {
      const auto drafted_by = [&](const std::string& draft) {
        return answer(
            {"--method", method, "--draft", draft, "--stages", "2", "--executor", "virtual", "--compute", compute});
      };
      const json ours = drafted_by(whole), its = drafted_by(small_model());
      EXPECT_EQ(ours["tokens"], plain) << method;
      EXPECT_EQ(ours["drafted"], its["drafted"]) << "all of the target's layers draft as it does itself";
      EXPECT_EQ(ours["accepted"], its["accepted"]);
      EXPECT_GT(ours["accepted"].get<int>(), 0) << method;
    }
    EXPECT_EQ(answer({"--method", method, "--draft", whole, "--executor", "threads"})["tokens"], plain) << method;
  }
  EXPECT_EQ(answer({"--method", "sd", "--draft", head({.kind = "draft", .vocabulary = {3, 9, 80}})})["tokens"], plain);
}

TEST(Head, AsADraftModelMustBeOneAndOfThisTarget) {
  const auto run = [](const std::string& model, const std::string& draft) {
    return run_program({"run", "-m", model, "--draft", draft, "hello"});
  };
  const std::string spd = head({.kind = "spd"});
  EXPECT_TRUE(fails(run(small_model(), spd), 2, {spd, "kind spd", "--head"}));
  const std::string other = write_tiny_model({.seed = 9}, temp_path("other-target.gguf"));
  const std::string draft = head({.kind = "draft"});
  EXPECT_TRUE(fails(run(other, draft), 2, {draft, other, "tiny-llama", "fingerprint"}));
}

TEST(Head, ServesTheMethodOfItsKindAndOthersAsASource) {
  const json plain = answer({"--method", "ar"})["tokens"];
  const std::vector<std::pair<std::string, std::string>> kinds = {
      {"spd", "spd"}, {"eagle3", "eagle3"}, {"p-eagle", "p-eagle"}, {"exit", "ppsd"}};
  for (const auto& [kind, method] : kinds) {
    const std::string file = head({.kind = kind});
    const json chosen = answer({"--head", file});
    EXPECT_EQ(chosen["tokens"], plain) << kind;
    EXPECT_EQ(chosen["stages"], kind == "spd" ? 2 : 1) << "an SPD head brings its cuts";
    for (const char* executor : {"threads", "virtual"}) {
      const json own = answer({"--head", file, "--method", method, "--executor", executor, "--stages", "2"});
      EXPECT_EQ(own["tokens"], plain) << kind << " on " << executor;
      EXPECT_EQ(own["method"], method);
      EXPECT_EQ(own["source"], "head");
      EXPECT_EQ(own["stages"], 2);
      if (executor == std::string("virtual")) {  // in real time a head may always come too late for so small a target
        EXPECT_GT(own["drafted"].get<int>(), 0) << kind;
      }
    }
    for (const char* other : {"specpipe", "surge", "ssd", "sd"})
      EXPECT_EQ(answer({"--head", file, "--method", other, "--source", "ngram,head"})["tokens"], plain)
          << kind << " for " << other;
  }
}

TEST(Head, ShippedOnesAreTakenWhereTheyFit) {
  namespace fs = std::filesystem;
  const fs::path root = temp_path("installation");
  fs::remove_all(root);
  fs::create_directories(root / "bin");
  fs::create_directories(root / "heads");
  const std::string program = root / "bin" / "sluice";
  fs::copy_file(program_path(), program);
  for (const char* kind : {"spd", "eagle3", "draft"})
    fs::copy_file(head({.kind = kind}), root / "heads" / (std::string(kind) + ".gguf"));
  write_file("installation/heads/a-broken.gguf", "GGUF");
  write_file("installation/heads/README.md", "no head");

  const auto run = [&](const std::string& model, Program::Arguments more) {
    Program::Arguments arguments = {"run", "-m",           model,    "--threads",  "1",       "-n",
                                    "20",  "--ignore-eos", "--json", "--executor", "virtual", "hello"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(arguments, {.program = program});
  };
  const auto answered = [&](Program::Arguments more) {
    const Ran ran = run(small_model(), std::move(more));
    EXPECT_EQ(ran.status, 0) << ran.err;
    return json::parse(ran.out, nullptr, false);
  };
  const json plain = answered({"--method", "ar"});
  EXPECT_EQ(plain["stages"], 1);
  const json spd = answered({"--method", "spd"});
  EXPECT_EQ(spd["stages"], 2);
  EXPECT_EQ(spd["tokens"], plain["tokens"]);
  EXPECT_EQ(answered({"--method", "eagle3"})["source"], "head");
  EXPECT_EQ(answered({})["source"], "head") << "auto takes EAGLE-3's";
  EXPECT_EQ(answered({"--stages", "2"})["source"], "head") << "auto takes SPD's";
  EXPECT_EQ(answered({"--stages", "3"})["source"], "ngram+draft") << "auto takes the draft";
  EXPECT_EQ(answered({"--source", "ngram"})["source"], "ngram");
  EXPECT_TRUE(fails(run(small_model(), {"--method", "p-eagle"}), 2, {"--method p-eagle", "--head FILE"}));
  EXPECT_TRUE(fails(run(small_model(), {"--method", "spd", "--stages", "3"}), 2,
                    {"spd.gguf was trained for 2 stages", "leave --stages and --cuts out"}));
  const std::string other = write_tiny_model({.seed = 9}, temp_path("other-target.gguf"));
  EXPECT_TRUE(fails(run(other, {"--method", "spd"}), 2, {"--method spd", "--head FILE", "sluice train"}));

  const fs::path prompts = temp_path("prompts");
  fs::create_directories(prompts);
  write_file("prompts/talk.jsonl", R"({"turns": ["hello"]})");
  const auto bench = [&](const std::string& methods, const Program::Arguments& more = {"-n", "4"}) {
    Program::Arguments arguments = {"bench",     "-m", small_model(), "--data",  prompts,     "--tasks", "talk",
                                    "--threads", "1",  "--executor",  "virtual", "--methods", methods};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(arguments, {.program = program});
  };
  const Ran compared = bench("ar,spd,specpipe");
  EXPECT_EQ(compared.status, 0) << compared.err;
  EXPECT_NE(compared.out.find("2 stages"), std::string::npos) << compared.out;
  EXPECT_NE(compared.out.find("identical: yes"), std::string::npos) << compared.out;
  EXPECT_NE(compared.out.find("spd spd.gguf; all with the stages of SPD's head, from layers 0, 2"), std::string::npos)
      << compared.out;
  const Ran both = bench("ar,spd,eagle3");
  EXPECT_EQ(both.status, 0) << "each has its own head: " << both.err;
  EXPECT_NE(both.out.find("heads: spd spd.gguf, eagle3 eagle3.gguf"), std::string::npos) << both.out;
  EXPECT_NE(both.out.find("identical: yes"), std::string::npos) << both.out;
  const Ran refused = bench("ar,spd,p-eagle");
  EXPECT_TRUE(fails(refused, 2, {"--method p-eagle", "--head FILE"}));
  EXPECT_EQ(refused.out, "") << "before anything was run";
  const std::string out = temp_path("auto-draft.json");
  const auto sources = [&](const std::string& methods) {
    const Ran ran = bench(methods, {"--stages", "3", "-n", "20", "--ignore-eos", "--json", out});
    EXPECT_EQ(ran.status, 0) << ran.err;
    std::ifstream file(out);
    std::map<std::string, std::string> found;
    const json all = json::parse(file, nullptr, false);
    for (const json& one : all["runs"]) found[one["method"]] = one["source"];
    return found;
  };
  using Sources = std::map<std::string, std::string>;
  EXPECT_EQ(sources("ar,surge"), (Sources{{"ar", "none"}, {"surge", "ngram"}}));
  EXPECT_EQ(sources("ar,surge,auto"), (Sources{{"ar", "none"}, {"surge", "ngram"}, {"auto", "ngram+draft"}}))
      << "auto takes the draft, as it does alone";
}

TEST(Head, ABenchGivesEachMethodTheHeadOfItsKind) {
  const std::string prompts = temp_path("head-prompts"), out = temp_path("heads.json");
  std::filesystem::create_directories(prompts);
  write_file("head-prompts/talk.jsonl", R"({"turns": ["hello hello hello"]})");
  Program::Arguments heads;
  for (const char* kind : {"spd", "eagle3", "p-eagle", "exit"})
    heads.insert(heads.end(), {"--head", head({.kind = kind})});
  const auto bench = [&](const Program::Arguments& more, const std::string& methods) {
    Program::Arguments arguments = {"bench",     "-m",    small_model(), "--data",     prompts,     "--tasks",
                                    "talk",      "-n",    "12",          "--executor", "virtual",   "--ignore-eos",
                                    "--methods", methods, "--json",      out,          "--threads", "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(arguments);
  };
  const std::string methods = "ar,spd,eagle3,p-eagle,ppsd,specpipe,surge";
  ASSERT_EQ(bench(heads, "ar").status, 0);
  const auto read = [&] {
    std::ifstream file(out);
    return json::parse(file, nullptr, false);
  };
  EXPECT_EQ(read()["settings"]["stages"], 1) << "SPD's head brings its stages when SPD runs";
  EXPECT_TRUE(fails(bench(heads, methods), 2, {"--json", "stages was 1 and is 2"}));
  heads.push_back("--overwrite");
  const Ran ran = bench(heads, methods);
  ASSERT_EQ(ran.status, 0) << ran.err;
  EXPECT_NE(ran.out.find("identical: yes"), std::string::npos) << ran.out;
  const json j = read();
  EXPECT_EQ(j["settings"]["heads"].size(), 4u);
  ASSERT_EQ(j["runs"].size(), 7u);
  for (const json& run : j["runs"]) {
    const std::string method = run["method"];
    EXPECT_EQ(run["stages"], 2) << method;
    EXPECT_EQ(run["source"], method == "ar"                              ? "none"
                             : method == "specpipe" || method == "surge" ? "ngram"
                                                                         : "head")
        << method;
  }
  const std::string eagle3 = head({.kind = "eagle3"});
  EXPECT_TRUE(fails(bench({"--head", eagle3, "--overwrite"}, "ar,spd"), 2, {"--method spd", "--head FILE"}));
  const Ran source = bench({"--head", eagle3, "--source", "ngram,head", "--overwrite"}, "ar,specpipe");
  EXPECT_EQ(source.status, 0) << source.err;
  EXPECT_EQ(read()["runs"][1]["source"], "ngram+head");
}

TEST(Head, ThoseOfTheDefaultModelServeTheirMethodsInOneBench) {
  const Ran ran = run_program({"bench", "--methods", "ar,spd,eagle3,p-eagle,ppsd", "--tasks", "code", "--limit", "1",
                               "-n", "6", "--executor", "virtual", "--context", "1024"});
  if (ran.err.find("no default model is installed") != std::string::npos) GTEST_SKIP() << ran.err;
  ASSERT_EQ(ran.status, 0) << ran.err;
  for (const char* word : {"10 stages", "spd spd-n10.gguf", "eagle3 eagle3.gguf", "p-eagle p-eagle.gguf",
                           "ppsd exit-n10.gguf", "identical: yes"})
    EXPECT_NE(ran.out.find(word), std::string::npos) << ran.out;
}

TEST(Head, OneOfAKindIsGivenAndTheMethodChooses) {
  const std::string spd = head({.kind = "spd"}), eagle3 = head({.kind = "eagle3"});
  const json plain = answer({"--method", "ar"})["tokens"];
  for (const auto& [method, stages] : {std::pair{"spd", 2}, {"eagle3", 1}}) {
    const json chosen = answer({"--head", eagle3, "--head", spd, "--method", method, "--executor", "virtual"});
    EXPECT_EQ(chosen["source"], "head");
    EXPECT_EQ(chosen["stages"], stages) << method;
    EXPECT_EQ(chosen["tokens"], plain);
  }
  EXPECT_EQ(answer({"--head", eagle3, "--head", spd, "--method", "specpipe"})["source"], "ngram");
  const auto run = [](Program::Arguments more) {
    more.insert(more.begin(), {"run", "-m", small_model(), "-n", "2", "hello"});
    return run_program(more);
  };
  const std::string twin = temp_path("twin.gguf");
  std::filesystem::copy_file(eagle3, twin, std::filesystem::copy_options::overwrite_existing);
  EXPECT_TRUE(fails(run({"--head", eagle3, "--head", twin}), 2, {"--head", "two heads of kind eagle3", eagle3, twin}));
  EXPECT_TRUE(fails(run({"--head", eagle3, "--head", spd, "--source", "head", "--method", "specpipe"}), 2,
                    {"--source head", "specpipe", "give one"}));
}

// The layer that comes with a model is its own head: asked for by --source, and taken by auto.
TEST(Head, AModelsFurtherLayerDraftsForIt) {
  const std::string path = write_tiny_model(with_experts({}, "glm4moe"), temp_path("further.gguf"));
  const auto run = [&](const Program::Arguments& more) {
    Program::Arguments arguments = {"run", "-m", path, "--threads", "1", "-n", "20", "--ignore-eos", "--json", "hello"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Ran ran = run_program(arguments);
    EXPECT_EQ(ran.status, 0) << ran.err;
    return json::parse(ran.out, nullptr, false);
  };
  const json plain = run({"--method", "ar"});
  for (const char* method : {"sd", "specpipe", "surge"}) {
    const json said = run({"--method", method, "--source", "mtp", "--stages", "2"});
    EXPECT_EQ(said["source"], "mtp") << method;
    EXPECT_EQ(said["tokens"], plain["tokens"]) << method;
    if (method == std::string("sd")) {  // the others ask where that pays
      EXPECT_GT(said["drafted"], 0);
    }
  }
  EXPECT_EQ(run({"--method", "surge", "--source", "ngram,mtp"})["source"], "ngram+mtp");
  EXPECT_EQ(run({"--stages", "2"})["tokens"], plain["tokens"]);
  const Ran inspected = run_program({"inspect", path});
  EXPECT_NE(inspected.out.find("predicts one token more: --source mtp"), std::string::npos) << inspected.out;
  EXPECT_EQ(json::parse(run_program({"inspect", path, "--json"}).out)["predicts_further"], true);

  const auto refused = [&](const std::string& model, const Program::Arguments& more) {
    Program::Arguments arguments = {"run", "-m", model, "hello"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(arguments);
  };
  EXPECT_TRUE(fails(refused(small_model(), {"--source", "mtp"}), 2, {"has no layer to predict further tokens"}));
  EXPECT_TRUE(fails(refused(path, {"--source", "head,mtp"}), 2, {"names one head twice"}));
  EXPECT_TRUE(fails(refused(path, {"--source", "mtp", "--head", path}), 2, {"--head gives another"}));
  EXPECT_TRUE(fails(refused(path, {"--source", "mtp", "--executor", "virtual", "--compute", "lazy"}), 2,
                    {"which --source mtp reads"}));
}

TEST(Head, WhatDoesNotFitIsRefused) {
  const auto run = [](std::vector<std::string> more) {
    std::vector<std::string> arguments = {"run", "-m", small_model(), "-n", "2", "hello"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(arguments);
  };
  const std::string spd = head({.kind = "spd"}), early = head({.kind = "exit"});
  EXPECT_TRUE(fails(run({"--head", spd, "--stages", "3"}), 2, {spd, "2 stages", "--cuts 2"}));
  EXPECT_TRUE(fails(run({"--head", spd, "--cuts", "1"}), 2, {spd, "2 stages", "--cuts 2"}));
  EXPECT_EQ(run({"--head", spd, "--stages", "2"}).status, 0);
  EXPECT_TRUE(fails(run({"--head", spd, "--method", "eagle3"}), 2, {"--method eagle3", "kind eagle3", "kind spd"}));
  EXPECT_TRUE(fails(run({"--method", "spd"}), 2, {"--method spd", "--head FILE"}));
  EXPECT_TRUE(fails(run({"--source", "head"}), 2, {"--source head", "--head FILE"}));
  EXPECT_TRUE(
      fails(run({"--head", early, "--executor", "virtual", "--compute", "lazy"}), 2, {"--compute lazy", "--head"}));
  EXPECT_TRUE(fails(run({"--head", head({.kind = "draft"})}), 2, {"--draft"}));
  EXPECT_TRUE(fails(run({"--head", temp_path("not-there")}), 2, {"not-there"}));
  for (const char* width : {"1", "4"})
    EXPECT_EQ(run({"--head", early, "--verify", "reject", "--temp", "1", "--method", "ppsd", "--width", width}).status,
              0);
}

}  // namespace
}  // namespace sluice::test
