from transformer_lab.cli import main

if __name__ == "__main__":
    main()
