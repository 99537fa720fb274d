// trainyard-local: the command line with the engine and Cairo. trainyard replaces itself by this
// program when a command needs them; users call trainyard.
#include "client/cli/command.h"
#include "client/local/work.h"

int main(int argc, char** argv) {
  using namespace trainyard::cli;
  const LocalWork work = {
      .run = run_local_run, .check = run_local_check, .plan = plan_here, .draw_png = draw_png};
  return run_program(argc, argv, &work);
}
