// trainyard: the command line. commands.cc finds the command, whose own file runs it.
#include "client/cli/command.h"

int main(int argc, char** argv) { return trainyard::cli::run_program(argc, argv, nullptr); }
