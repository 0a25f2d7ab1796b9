/*
 * Jacobi relaxation of a plate, as a parallel program that waits for its slowest rank in each step.
 *
 *     mpicc -O2 -o jacobi jacobi.c && mpirun -n 2 ./jacobi STEPS
 *
 * Every rank has ROWS x COLUMNS points between two rows of its neighbours. A step replaces each
 * point by the mean of its four neighbours, exchanges the outer rows and adds up the change over all
 * ranks. Rank 0 prints the seconds of all steps, and the last change, which shows that runs
 * have done the same work.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 512, COLUMNS = 512, WIDTH = COLUMNS + 2 };

static double plates[2][(ROWS + 2) * WIDTH];

/* The sum of the squared changes of this rank's points. */
static double relax(const double *old, double *new)
{
    double change = 0;
    for (int row = 1; row <= ROWS; row++) {
        for (int column = 1; column <= COLUMNS; column++) {
            int at = row * WIDTH + column;
            new[at] = 0.25 * (old[at - 1] + old[at + 1] + old[at - WIDTH] + old[at + WIDTH]);
            change += (new[at] - old[at]) * (new[at] - old[at]);
        }
    }
    return change;
}

/* Gives the outer rows to the neighbours, and takes theirs. */
static void exchange(double *plate, int above, int below)
{
    MPI_Sendrecv(plate + WIDTH, WIDTH, MPI_DOUBLE, above, 0, plate + (ROWS + 1) * WIDTH, WIDTH,
                 MPI_DOUBLE, below, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Sendrecv(plate + ROWS * WIDTH, WIDTH, MPI_DOUBLE, below, 1, plate, WIDTH, MPI_DOUBLE, above,
                 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    long steps = argc == 2 ? atol(argv[1]) : 0;
    if (steps <= 0) {
        if (rank == 0)
            fprintf(stderr, "usage: mpirun -n RANKS %s STEPS\n", argv[0]);
        MPI_Finalize();
        return 2;
    }
    int above = rank == 0 ? MPI_PROC_NULL : rank - 1;
    int below = rank == ranks - 1 ? MPI_PROC_NULL : rank + 1;
    /* The plate is warm on its left. */
    for (int row = 0; row < ROWS + 2; row++)
        plates[0][row * WIDTH] = plates[1][row * WIDTH] = 1;

    double change = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    double started = MPI_Wtime();
    for (long step = 0; step < steps; step++) {
        double *old = plates[step % 2], *new = plates[(step + 1) % 2];
        double own = relax(old, new);
        exchange(new, above, below);
        MPI_Allreduce(&own, &change, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    }
    double seconds = MPI_Wtime() - started;
    if (rank == 0)
        printf("{\"seconds\": %.6f, \"change\": %.9e}\n", seconds, change);
    MPI_Finalize();
    return 0;
}
