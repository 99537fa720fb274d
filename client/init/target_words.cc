#include "client/init/target_words.h"

#include <algorithm>
#include <cctype>
#include <vector>

#include "src/base/text.h"
#include "src/data/table/column_names.h"

namespace trainyard::init {
namespace {

// Lists of words, separated by spaces.
constexpr std::string_view kTargets =
    "charges churn churned converted default defaulted diagnosis fraud isfraud label labels "
    "medianhousevalue medv mpg outcome output progression response result returned rings "
    "saleprice sentiment spam species survived target";

constexpr std::string_view kOutcomes = "choice class dead death died freq score value vote y yield";

constexpr std::string_view kResults =
    "absorbance abuse accepted accident accidents accuracy admitted affect approve approved "
    "arrests attitude bid bids biomass births bought bp bweight calls cancer casualties cens "
    "censored change children cholesterol claims clicked co2 colgpa conc concentration "
    "consumption cooperation cost costs count counts crime crimes damage dbp deaths delay "
    "delta demand density diabetes disease disorder duration earning earnings effect emission "
    "emissions employ employed employment error errors eval evaluation event exam failed "
    "failure failures fertility fight fustat gpa grade grades growth happiness happy headache "
    "health hired hit hlth hospitalised hospitalized incidence infection injuries kids killed "
    "lfp lnwage loss losses lwage margin mark marks mass math mortality murder murders ozone "
    "packs pain participate participated participation passed pay pct percent percentage points "
    "positive prevalence price prices profit profits proportion purchase purchased quality rate "
    "rates rating ratings ratio "
    "reaction read reading recurrence rejected relapse released return returns revenue rgr "
    "ridership salary sales satisfaction satisfied sbp sold solubility speed stars status "
    "strength stroke subscribed success successes support survival switch switched symptom "
    "symptoms test thickness tip toxicity trust unemployment variety verbal visits volume "
    "volunteer volunteered wage wages weightloss win winner wins won";

constexpr std::string_view kInputs =
    "age ages marital batch black block cell checks citizen city cluster concomitant country "
    "county cusip degree district dose east educ education exper experience female fips "
    "fitted fold foreign gen gender generation group hh hisp hispanic inc income iso lag lat "
    "latitude long longitude lot male married midwest minority n native north northeast "
    "occasion occupation party period perweight plot postcode pred predicted prediction race "
    "rack reg region religion rep replicate resample residual residuals rural school schools "
    "sector seed sex site size smoke smoker smoking south state subset temp temperature "
    "tenure trace treat treatment tree trt type urban wafer weight weights west white "
    "wind wt zip zipcode";

/// Calls visit(word) for each word of the list until it returns true; returns whether it did.
bool any_word(std::string_view list, auto&& visit) {
  while (!list.empty()) {
    const size_t end = std::min(list.find(' '), list.size());
    if (visit(list.substr(0, end))) return true;
    list.remove_prefix(std::min(list.size(), end + 1));
  }
  return false;
}

bool is_one_of(std::string_view list, std::string_view word) {
  return any_word(list, [&](std::string_view other) { return other == word; });
}

/// Returns whether the name is the logarithm of a result: "lwage", "logsales".
bool is_log_of_result(std::string_view letters) {
  if (letters.starts_with("log") && is_one_of(kResults, letters.substr(3))) return true;
  return letters.starts_with('l') && is_one_of(kResults, letters.substr(1));
}

/// Returns whether a name of one word ends with a long word for a result: "gdpgrowth", "goutput".
bool ends_with_result(std::string_view letters) {
  constexpr size_t kLongWord = 6;
  const auto ends = [&](std::string_view word) {
    return word.size() >= kLongWord && letters.ends_with(word);
  };
  // Rates are often abbreviated: "crmrte", "prate".
  const std::string_view stem = letters.substr(0, letters.find_last_not_of("0123456789") + 1);
  return any_word(kResults, ends) || any_word(kTargets, ends) || stem.ends_with("rate") ||
         stem.ends_with("rte");
}

}  // namespace

std::string letters_of_name(std::string_view name) {
  std::string letters = lower(name);
  std::erase_if(letters, [](unsigned char c) { return std::isalnum(c) == 0; });
  return letters;
}

TargetWord find_target_word(std::string_view name) {
  const std::string letters = letters_of_name(name);
  const std::vector<std::string> words = words_of_name(name);
  // "outcome2" is an outcome, too.
  const std::string stem = letters.substr(0, letters.find_last_not_of("0123456789") + 1);
  if (is_one_of(kTargets, stem)) return TargetWord::kTarget;
  if (is_one_of(kOutcomes, letters)) return TargetWord::kOutcome;
  if (words.empty()) return TargetWord::kNone;
  const std::string_view first = words.front(), last = words.back();
  // The last word says what the column is: a "school_rate" is a rate, a "rate_group" a group.
  if (is_one_of(kInputs, last) || last.ends_with("code")) return TargetWord::kInput;
  if (is_one_of(kTargets, last) || is_one_of(kOutcomes, last)) return TargetWord::kOutcomeLast;
  if (is_one_of(kResults, last) || is_log_of_result(letters) || ends_with_result(letters)) {
    return TargetWord::kResult;
  }
  if (is_one_of(kInputs, first)) return TargetWord::kInput;
  const bool result = is_one_of(kResults, first) || is_one_of(kResults, letters);
  return result ? TargetWord::kResult : TargetWord::kNone;
}

}  // namespace trainyard::init
