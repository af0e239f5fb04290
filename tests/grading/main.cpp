// Entry of every lab's verdict test; cmake/AddLab.cmake says which lab it is.
#include "tests/grading/verdict_main.h"

int main(int argc, char** argv) { return lab::grading::verdict_main(argc, argv, LAB_FOLDER); }
