#include "client/cli/reason_notes.h"

#include <algorithm>

#include "client/cli/terminal.h"

namespace trainyard::cli {

void ReasonNotes::add(const std::string& name, const std::string& reason) {
  if (reason.empty()) return;
  auto note = std::ranges::find(notes_, reason, &Note::reason);
  if (note == notes_.end()) note = notes_.insert(note, {reason, {}});
  note->names.push_back(name);
}

std::string ReasonNotes::render(int width) const {
  constexpr size_t kNamesMax = 3, kNotesMax = 8;
  std::string out;
  for (size_t i = 0; i < std::min(notes_.size(), kNotesMax); ++i) {
    const Note& note = notes_[i];
    std::string names;
    for (size_t n = 0; n < std::min(note.names.size(), kNamesMax); ++n) {
      names += (n > 0 ? ", " : "") + note.names[n];
    }
    if (note.names.size() > kNamesMax) {
      names += " and " + std::to_string(note.names.size() - kNamesMax) + " more";
    }
    out += wrapped(safe_text(names + ": " + note.reason), width, /*indent=*/2) + "\n";
  }
  if (notes_.size() > kNotesMax) {
    out += "and " + std::to_string(notes_.size() - kNotesMax) +
           " more reasons; 'trainyard explain "
           "JOB' shows a job's\n";
  }
  return out;
}

}  // namespace trainyard::cli
