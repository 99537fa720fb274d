#include "server/store/wait_for.h"

namespace trainyard::server {
namespace {
thread_local bool answers = false;
}  // namespace

void note_answering_thread() { answers = true; }
bool is_answering_thread() { return answers; }

}  // namespace trainyard::server
