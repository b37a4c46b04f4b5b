#include "mfsdp/model/unit_visit.h"

#include "support/catch.h"
#include "support/model_cases.h"

#include <algorithm>
#include <string>

using namespace mfsdp;
using model::Phase;
using model::Purpose;
using model::UnitVisit;

namespace {

/// "unit phase panel reads-writes": p and P stand for parameters and panel, as in "3 score 0 rpP".
std::string describe(const UnitVisit& visit) {
    static constexpr const char* kPhases[] = {"forward", "score", "backward", "logits"};
    std::string text = std::to_string(visit.unit) + " " + kPhases[static_cast<int>(visit.phase)];
    if (visit.panel >= 0) text.append(" ").append(std::to_string(visit.panel));
    text += " r";
    if (visit.reads_parameters) text += "p";
    if (visit.reads_panel) text += "P";
    text += " w";
    if (visit.writes_parameters) text += "p";
    if (visit.writes_panel) text += "P";
    return text;
}

std::vector<std::string> visits_of(test::ModelCase description, std::int64_t vocabulary, Purpose purpose) {
    description.config.vocab_size = vocabulary;
    std::vector<std::string> lines;
    for (const UnitVisit& visit : model::unit_visits(model::describe_model(description.config), purpose)) {
        CHECK(visit.purpose == purpose);
        lines.push_back(describe(visit));
    }
    return lines;
}

}  // namespace

TEST_CASE("training visits tables panel by panel, the head twice, and the blocks there and back") {
    const std::vector<std::string> expected{
        "0 forward 0 rP w",   "0 forward 1 rP w",   "0 forward 2 rpP w",     // positions are added last
        "1 forward rp w",     "2 forward rp w",                              //
        "3 score 0 rpP w",    "3 score 1 rP w",     "3 score 2 rP w",        // the norm runs first
        "3 backward 2 rP wP", "3 backward 1 rP wP", "3 backward 0 rpP wpP",  // and its backward last
        "2 backward rp wp",   "1 backward rp wp",                            //
        "0 backward 0 r wP",  "0 backward 1 r wP",  "0 backward 2 r wpP",
    };
    CHECK(visits_of(test::gpt2_case("", true), 2 * 4096 + 1, Purpose::train) == expected);
}

TEST_CASE("an embedding without positions has no ordinary parameters to read or write") {
    const std::vector<std::string> expected{"0 forward 0 rP w", "1 forward rp w",       "2 forward rp w",
                                            "3 score 0 rpP w",  "3 backward 0 rpP wpP", "2 backward rp wp",
                                            "1 backward rp wp", "0 backward 0 r wP"};
    CHECK(visits_of(test::llama_case("", 2, false, false), 4096, Purpose::train) == expected);
}

TEST_CASE("evaluation ends with the scores, generation with the logits") {
    const auto training = visits_of(test::gpt2_case("", false), 5000, Purpose::train);
    auto evaluation = visits_of(test::gpt2_case("", false), 5000, Purpose::evaluate);
    REQUIRE(evaluation.size() == 6);
    CHECK(std::equal(evaluation.begin(), evaluation.end(), training.begin()));
    CHECK(evaluation.back() == "3 score 1 rP w");
    const auto generation = visits_of(test::gpt2_case("", false), 5000, Purpose::generate);
    evaluation[4] = "3 logits 0 rpP w";
    evaluation[5] = "3 logits 1 rP w";
    CHECK(generation == evaluation);
}
